//! C19: every reading of a parameter's name is judged.

use super::{ask, assert_nothing_was_asked, world_over};

const BY_PARAMETER: &str = "\
version: 1
net:
  enabled: true
  allow:
    - {name: still-here, host: allowed.test, paths: [/still-here]}
    - {name: json, host: allowed.test, paths: [/export], query: {format: json}}
    - {name: open, host: allowed.test, paths: [/open]}
  deny:
    - {name: admin, host: allowed.test, query: {as_user: root}}
";

#[tokio::test]
async fn a_denied_parameter_is_denied_however_it_is_written() {
    for http2 in [false, true] {
        let world = world_over(http2, BY_PARAMETER).await;
        for query in [
            "as_user=root",
            "AS_USER=root",
            "as%5fuser=root",
            "as%255fuser=root",
            "as%u005fuser=root",
            "as%_user=root",
            "as_user[]=root",
            "as_user[0]=root",
            "as_user%5B%5D=root",
            "[as_user]=root",
            "as.user=root",
            "as+user=root",
            "as%20user=root",
            "as[user=root",
            "+as_user=root",
            "%20as_user=root",
            "as_user%20=root",
            "as_user%00=root",
            "as_user%00x=root",
            "as%00_user=root",
            "a=1;as_user=root",
            "a=1&amp;as_user=root",
            "as_user=nobody&as_user=root",
            "as_user=root;x",
            "as_user=root%00x",
            "as_user=%2572oot",
            "as_user=+root",
            "as_user=root%20",
        ] {
            let reply = ask(&world, http2, "GET", &format!("/open?{query}")).send().await;
            assert_eq!(reply.status, 403, "{query}: {}", reply.text());
            reply.assert_refused(403, "denied");
        }
        assert_nothing_was_asked(&world);
        for query in ["as_user=nobody", "user=root", "has_user=root", "x=as_user%3Droot", "a[b]=c"]
        {
            let reply = ask(&world, http2, "GET", &format!("/open?{query}")).send().await;
            reply.assert_relayed(200);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn an_allowed_parameter_is_plain_and_alone() {
    for http2 in [false, true] {
        let world = world_over(http2, BY_PARAMETER).await;
        for query in [
            "format=json&FORMAT=xml",
            "format=json&format[]=xml",
            "format=json&format%00=xml",
            "format=json&+format=xml",
            "format=json&%2566ormat=xml",
            "format=json;format=xml",
            "a=b;format=xml&format=json",
            "format=json&[format]=xml",
            "format=json&format=json",
            "format[]=json",
            "Format=json",
            "+format=json",
            "%2566ormat=json",
            "format=json%00xml",
            "format=json;x",
        ] {
            let reply = ask(&world, http2, "GET", &format!("/export?{query}")).send().await;
            assert_eq!(reply.status, 403, "{query}: {}", reply.text());
            reply.assert_refused(403, "no_rule");
        }
        assert_nothing_was_asked(&world);
        for query in
            ["format=json", "a=1&format=json&b[c]=d", "%66ormat=js%6fn", "x=%25&format=json"]
        {
            let reply = ask(&world, http2, "GET", &format!("/export?{query}")).send().await;
            reply.assert_relayed(200);
        }
        world.end().await;
    }
}

/// Servers stop reading parameters somewhere, and not at the same one.
#[tokio::test]
async fn more_parameters_than_servers_read_are_refused() {
    let world = world_over(false, BY_PARAMETER).await;
    let many = format!("/export?{}format=json", "a&".repeat(1000));
    ask(&world, false, "GET", &many).send().await.assert_refused(400, "ambiguous");
    let fewer = format!("/export?{}format=json", "a&".repeat(999));
    ask(&world, false, "GET", &fewer).send().await.assert_relayed(200);
    world.end().await;
}
