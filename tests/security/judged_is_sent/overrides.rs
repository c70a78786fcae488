//! C19: headers and parameters by which servers replace what a request says.

use super::{ask, assert_nothing_was_asked, world_over};

/// `/public` may be read and written; everything else is somebody else's.
const PUBLIC: &str = "\
version: 1
net:
  enabled: true
  allow:
    - {name: still-here, host: allowed.test, paths: [/still-here]}
    - {name: public, host: allowed.test, methods: [GET, POST, MOVE], paths: [/public, '/public/**', /]}
  deny:
    - {name: admin, host: allowed.test, paths: ['/admin/**', '/public/secret']}
";

/// C8, C19: methods.
#[tokio::test]
async fn a_method_may_be_replaced_by_one_that_is_allowed_and_no_other() {
    for http2 in [false, true] {
        let world = world_over(http2, PUBLIC).await;
        for name in [
            "X-HTTP-Method-Override",
            "x_http_method_override",
            "X.HTTP.Method.Override",
            "X-HTTP-Method",
            "X-Method-Override",
            "X_METHOD_OVERRIDE",
            "X-Method",
            "HTTP-Method-Override",
            "X-REST-Method",
            "X-Original-Method",
            "X-Forwarded-Method",
        ] {
            let asked = ask(&world, http2, "POST", "/public").header(name, "DELETE");
            asked.send().await.assert_refused(403, "no_rule");
        }
        for parameter in [
            "_method=DELETE",
            "_method=delete",
            "%5fmethod=DELETE",
            "%255fmethod=DELETE",
            "_METHOD=PUT",
            "_method%00=DELETE",
            ".method=DELETE",
            "a=1;_method=DELETE",
            "_method[]=DELETE",
            "_method=POST&_method[0]=DELETE",
            "x-http-method-override=DELETE",
            "method=delete",
        ] {
            let path = format!("/public?{parameter}");
            let reply = ask(&world, http2, "POST", &path).send().await;
            assert!([400, 403].contains(&reply.status), "{parameter}: {reply:?}");
            assert!(reply.header("x-sluice-code").is_some(), "{parameter}: {reply:?}");
        }
        assert_nothing_was_asked(&world);
        for path in ["/public?_method=GET", "/public?method=flickr.people.find&method=x"] {
            ask(&world, http2, "POST", path).send().await.assert_relayed(200);
        }
        world.end().await;
    }
}

/// C19: paths.
#[tokio::test]
async fn a_path_that_a_header_or_a_parameter_names_is_judged_as_a_path() {
    for http2 in [false, true] {
        let world = world_over(http2, PUBLIC).await;
        for name in [
            "X-Original-URL",
            "x_original_url",
            "X-Rewrite-URL",
            "X-Original-URI",
            "X-Forwarded-URI",
            "X-Forwarded-Path",
            "X-Original-Path",
            "X-Envoy-Original-Path",
            "X-Matched-Path",
            "X-Invoke-Path",
        ] {
            for (value, code) in [
                ("/admin/users", "denied"),
                ("/public/secret", "denied"),
                ("/elsewhere", "no_rule"),
                ("/admin/users?x=1", "denied"),
                ("https://allowed.test/admin/users", "denied"),
            ] {
                let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
                assert_eq!(reply.status, 403, "{name}: {value}: {reply:?}");
                reply.assert_refused(403, code);
            }
            for value in ["/public/../admin", "admin", "//admin", "/public, /admin/users", ""] {
                let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
                assert_eq!(reply.status, 400, "{name}: {value:?}: {reply:?}");
            }
            let reply = ask(&world, http2, "GET", "/public")
                .header(name, "https://evil.test/public")
                .send()
                .await;
            reply.assert_refused(421, "name_mismatch");
        }
        for name in ["X-Forwarded-Prefix", "X-Script-Name", "SCRIPT_NAME", "X-Forwarded-Base"] {
            let reply = ask(&world, http2, "GET", "/public/a").header(name, "/public").send().await;
            reply.assert_refused(400, "ambiguous");
        }
        for path in ["/?rest_route=/admin/users", "/?rest_route=%2fadmin%2fusers"] {
            ask(&world, http2, "GET", path).send().await.assert_refused(403, "denied");
        }
        let moved = ask(&world, http2, "MOVE", "/public/a")
            .header("Destination", "https://allowed.test/admin/users")
            .send()
            .await;
        moved.assert_refused(403, "denied");
        assert_nothing_was_asked(&world);
        for (name, value) in [
            ("X-Original-URL", "/public/a"),
            ("X-Rewrite-URL", "/public?b=c"),
            ("X-Original-URL", "https://allowed.test/public"),
            ("X-Forwarded-Prefix", "/"),
            ("Destination", "anything"),
        ] {
            let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
            reply.assert_relayed(200);
        }
        world.end().await;
    }
}

/// C19: hosts and schemes.
#[tokio::test]
async fn a_host_or_scheme_that_a_header_names_is_the_connections() {
    for http2 in [false, true] {
        let world = world_over(http2, PUBLIC).await;
        for (name, value) in [
            ("X-Forwarded-Host", "evil.test"),
            ("x_forwarded_host", "evil.test"),
            ("X-Forwarded-Host", "allowed.test, evil.test"),
            ("X-Forwarded-Host", "allowed.test:8443"),
            ("X-Host", "evil.test"),
            ("X-Original-Host", "evil.test"),
            ("X-Forwarded-Server", "evil.test"),
            ("X-HTTP-Host-Override", "evil.test"),
            ("X-Forwarded-Port", "8443"),
            ("Forwarded", "for=1.2.3.4;host=evil.test"),
            ("Forwarded", "for=1.2.3.4, for=5.6.7.8;Host=\"evil.test\""),
            ("Forwarded", "proto=http"),
            ("X-Forwarded-Proto", "http"),
            ("X-Forwarded-Proto", "https, http"),
            ("X-Forwarded-Scheme", "http"),
            ("X-Url-Scheme", "http"),
            ("X-Scheme", "http"),
            ("Front-End-Https", "off"),
            ("X-Forwarded-Ssl", "off"),
        ] {
            let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
            assert_eq!(reply.status, 421, "{name}: {value}: {reply:?}");
            reply.assert_refused(421, "name_mismatch");
        }
        for (name, value) in [
            ("X-Forwarded-Host", "a b"),
            ("X-Forwarded-Host", ""),
            ("X-Forwarded-Proto", "gopher"),
            ("X-Forwarded-Port", "x"),
            ("Forwarded", "for=\"a;host=evil.test\""),
            ("Forwarded", "host=\"evil\\.test\""),
            ("Forwarded", "host"),
        ] {
            let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
            assert_eq!(reply.status, 400, "{name}: {value}: {reply:?}");
        }
        assert_nothing_was_asked(&world);
        world.assert_nobody_was_contacted();
        for (name, value) in [
            ("X-Forwarded-Host", "Allowed.Test:443"),
            ("X-Forwarded-Proto", "HTTPS"),
            ("X-Forwarded-Port", "443"),
            ("Front-End-Https", "on"),
            ("Forwarded", "for=\"[2001:db8::1]:80\";by=x;host=allowed.test;proto=https"),
            ("X-Forwarded-For", "1.2.3.4"),
        ] {
            let reply = ask(&world, http2, "GET", "/public").header(name, value).send().await;
            reply.assert_relayed(200);
        }
        world.end().await;
    }
}
