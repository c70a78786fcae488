//! Every way in leads to the same answer.

use tests::{Way, World};

#[tokio::test]
async fn what_is_allowed_gets_through_by_every_way() {
    let world = World::new().start().await;
    for way in Way::ALL {
        for url in ["https://allowed.test/a?b=c", "http://allowed.test/a?b=c"] {
            let reply = world.sandbox.ask("GET", url).by(way).send().await;
            reply.assert_relayed(200);
            assert_eq!(reply.text(), "GET /a?b=c at allowed.test, 0 bytes", "{way:?} {url}");
        }
    }
    world.assert_nobody_was_contacted();
    world.end().await;
}
