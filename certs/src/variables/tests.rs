//! The environment as text: a change to it is a change to every sandbox.

use expect_test::expect;

use super::*;

#[test]
fn the_whole_environment() {
    let environment = environment(&places(), Some(&gateway()));
    expect![[r#"
        http_proxy=http://10.9.0.1:3128
        HTTP_PROXY=http://10.9.0.1:3128
        https_proxy=http://10.9.0.1:3128
        HTTPS_PROXY=http://10.9.0.1:3128
        all_proxy=http://10.9.0.1:3128
        ALL_PROXY=http://10.9.0.1:3128
        no_proxy=localhost,127.0.0.1,::1
        NO_PROXY=localhost,127.0.0.1,::1
        npm_config_proxy=http://10.9.0.1:3128
        npm_config_https_proxy=http://10.9.0.1:3128
        NODE_USE_ENV_PROXY=1
        JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=10.9.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=10.9.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.* -Djavax.net.ssl.trustStore=/etc/sluice/ca/truststore.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit
        CODEX_CA_CERTIFICATE=/etc/sluice/ca/ca.pem
        DENO_CERT=/etc/sluice/ca/ca.pem
        NODE_EXTRA_CA_CERTS=/etc/sluice/ca/ca.pem
        DENO_TLS_CA_STORE=system,mozilla
        NODE_USE_SYSTEM_CA=1
        UV_SYSTEM_CERTS=true
        AWS_CA_BUNDLE=/etc/sluice/ca/bundle.pem
        BUNDLE_SSL_CA_CERT=/etc/sluice/ca/bundle.pem
        CARGO_HTTP_CAINFO=/etc/sluice/ca/bundle.pem
        CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=/etc/sluice/ca/bundle.pem
        COMPOSER_CAFILE=/etc/sluice/ca/bundle.pem
        CONDA_SSL_VERIFY=/etc/sluice/ca/bundle.pem
        CURL_CA_BUNDLE=/etc/sluice/ca/bundle.pem
        GIT_SSL_CAINFO=/etc/sluice/ca/bundle.pem
        GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=/etc/sluice/ca/bundle.pem
        HEX_CACERTS_PATH=/etc/sluice/ca/bundle.pem
        NIX_SSL_CERT_FILE=/etc/sluice/ca/bundle.pem
        PIP_CERT=/etc/sluice/ca/bundle.pem
        REQUESTS_CA_BUNDLE=/etc/sluice/ca/bundle.pem
        SSL_CERT_FILE=/etc/sluice/ca/bundle.pem
        YARN_HTTPS_CA_FILE_PATH=/etc/sluice/ca/bundle.pem
        npm_config_cafile=/etc/sluice/ca/bundle.pem
    "#]].assert_eq(&written(&environment));
    assert_eq!(environment.unset, ["SSL_CERT_DIR"]);
    assert_eq!(environment.kept, []);
}

#[test]
fn without_a_proxy_the_trust_stays_and_nothing_else_changes() {
    let with = environment(&places(), Some(&gateway()));
    let without = environment(&places(), None);
    assert!(without.set.iter().all(|(name, _)| !name.to_lowercase().contains("proxy")));

    let java = |environment: &TrustVariables| value(environment, "JAVA_TOOL_OPTIONS");
    assert_eq!(
        java(&without),
        "-Djavax.net.ssl.trustStore=/etc/sluice/ca/truststore.p12 \
         -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
    );
    assert!(java(&with).ends_with(&java(&without)));
    for (name, value) in without.set.iter().filter(|(name, _)| *name != "JAVA_TOOL_OPTIONS") {
        assert!(with.set.contains(&(name, value.clone())), "{name}");
    }
}

#[test]
fn what_replaces_gets_the_bundle_and_what_appends_gets_our_authority_alone() {
    for variable in TABLE {
        match variable.kind {
            VariableKind::Append => {
                assert_eq!(variable.template, Template::CaPath, "{}", variable.name)
            }
            VariableKind::Replace => {
                assert_eq!(variable.template, Template::BundlePath, "{}", variable.name)
            }
            VariableKind::Proxy | VariableKind::Store | VariableKind::Switch => assert!(
                !matches!(variable.template, Template::CaPath | Template::BundlePath),
                "{}",
                variable.name
            ),
        }
    }
}

#[test]
fn what_somebody_chose_is_left_alone_and_reported() {
    let environment = environment_beside(&places(), Some(&gateway()), |name| {
        ["JAVA_TOOL_OPTIONS", "PIP_CERT", "SSL_CERT_DIR"].contains(&name)
    });
    assert!(environment.set.iter().all(|(name, _)| *name != "PIP_CERT"));
    assert!(environment.set.iter().all(|(name, _)| *name != "JAVA_TOOL_OPTIONS"));
    assert!(environment.unset.is_empty());

    let reported: Vec<_> = environment.kept.iter().map(KeptVariable::to_string).collect();
    expect![[r#"
        `JAVA_TOOL_OPTIONS` is already set and was left alone; if the JVM, Maven and Gradle cannot connect, set it to `-Dhttp.proxyHost=10.9.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=10.9.0.1 -Dhttps.proxyPort=3128 -Dhttp.nonProxyHosts=localhost|127.* -Djavax.net.ssl.trustStore=/etc/sluice/ca/truststore.p12 -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit`
        `PIP_CERT` is already set and was left alone; if pip cannot connect, set it to `/etc/sluice/ca/bundle.pem`"#]].assert_eq(&reported.join("\n"));
}

#[test]
fn a_proxy_at_an_ipv6_address_is_bracketed_in_its_url() {
    let proxy = Proxy { host: "fd00::1".into(), port: 3128 };
    assert_eq!(proxy.to_string(), "http://[fd00::1]:3128");
}

fn places() -> KitPaths {
    KitPaths::under("/etc/sluice/ca")
}

fn gateway() -> Proxy {
    Proxy { host: "10.9.0.1".into(), port: 3128 }
}

fn value(environment: &TrustVariables, name: &str) -> String {
    environment.set.iter().find(|(set, _)| *set == name).unwrap().1.clone()
}

fn written(environment: &TrustVariables) -> String {
    environment.set.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}
