//! Real servers that a gateway must not speak to, each with its reason.
//!
//! The chains and the servers are OpenSSL's: it still makes what nobody should.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tests::CommandDeadline as _;
use tests::World;
use tests::available::is_installed;

/// A server, what it is started with, and what a sandbox is told about it.
struct Case {
    name: &'static str,
    /// How its certificate comes about, in a shell; leaves `NAME.pem` and
    /// `NAME.key`.
    made: String,
    serves: &'static [&'static str],
    code: &'static str,
    reason: &'static str,
}

const UNTRUSTED: &str = "upstream_untrusted";
const INCOMPATIBLE: &str = "upstream_incompatible";

/// A certificate for `name`, signed by `issuer`, with more of OpenSSL's words.
fn signed(name: &str, issuer: &str, key: &str, extension: &str, more: &str) -> String {
    format!(
        "openssl req -newkey {key} -nodes -keyout {name}.key -subj /CN={name} -out {name}.csr &&
         printf 'subjectAltName=DNS:{name}.bad.test\n{extension}' >{name}.ext &&
         openssl x509 -req -in {name}.csr -CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial \
         -extfile {name}.ext {more} -out {name}.leaf && cat {name}.leaf {issuer}.pem >{name}.pem"
    )
}

/// An authority below the one that is trusted.
fn intermediate(name: &str, key: &str, extension: &str) -> String {
    format!(
        "openssl req -newkey {key} -nodes -keyout {name}.key -subj /CN={name} -out {name}.csr &&
         printf 'basicConstraints=critical,CA:TRUE\n{extension}' >{name}.ext &&
         openssl x509 -req -in {name}.csr -CA root.pem -CAkey root.key -CAcreateserial \
         -extfile {name}.ext -days 30 -out {name}.pem"
    )
}

const ROOT: &str = "openssl req -x509 -newkey rsa:2048 -nodes -keyout root.key -subj /CN=root \
                    -addext basicConstraints=critical,CA:TRUE -days 30 -out root.pem";

fn cases() -> Vec<Case> {
    let plain = |name| signed(name, "root", "rsa:2048", "", "-days 30");
    let weak: &[&str] = &["-cipher", "ALL:@SECLEVEL=0"];
    let case = |name, made, serves, code, reason| Case { name, made, serves, code, reason };
    let other = plain("other").replace("DNS:other.bad.test", "DNS:else.test");
    let foreign = ROOT.replace("root", "stranger");
    let foreign =
        format!("{foreign} && {}", signed("foreign", "stranger", "rsa:2048", "", "-days 30"));
    let own = "openssl req -x509 -newkey rsa:2048 -nodes -keyout own.key -subj /CN=own -addext \
               subjectAltName=DNS:own.bad.test -addext basicConstraints=CA:FALSE -days 30 -out own.pem";
    let short = intermediate("short", "rsa:1024", "");
    let short = format!("{short} && {}", signed("below", "short", "rsa:2048", "", "-days 30"));
    let bound =
        intermediate("bound", "rsa:2048", "nameConstraints=critical,permitted;DNS:else.test");
    let bound = format!("{bound} && {}", signed("bounded", "bound", "rsa:2048", "", "-days 30"));
    let last = intermediate("last", "rsa:2048", "").replace("CA:TRUE", "CA:TRUE,pathlen:0");
    let deep = intermediate("deep", "rsa:2048", "").replace("root", "last");
    let long = signed("long", "deep", "rsa:2048", "", "-days 30");
    let long = format!("{last} && {deep} && {long} && cat last.pem >>long.pem");
    vec![
        case(
            "weak",
            signed("weak", "root", "rsa:1024", "", "-days 30"),
            weak,
            UNTRUSTED,
            "RSA key of 1024 bits",
        ),
        case(
            "weak12",
            signed("weak12", "root", "rsa:1024", "", "-days 30"),
            &["-cipher", "ALL:@SECLEVEL=0", "-tls1_2"],
            UNTRUSTED,
            "RSA key of 1024 bits",
        ),
        case("below", short, weak, UNTRUSTED, "RSA key of 1024 bits"),
        case(
            "sha",
            signed("sha", "root", "rsa:2048", "", "-sha1 -days 30"),
            weak,
            UNTRUSTED,
            "SHA-1",
        ),
        case("bounded", bound, &[], UNTRUSTED, "name constraints"),
        case("long", long, &[], UNTRUSTED, "path length"),
        case(
            "late",
            signed("late", "root", "rsa:2048", "", "-days -1"),
            &[],
            UNTRUSTED,
            "has expired",
        ),
        case("other", other, &[], UNTRUSTED, "issued for another name"),
        case("own", own.to_owned(), &[], UNTRUSTED, "no authority we trust"),
        case("foreign", foreign, &[], UNTRUSTED, "no authority we trust"),
        case(
            "client",
            signed("client", "root", "rsa:2048", "extendedKeyUsage=clientAuth", "-days 30"),
            &[],
            UNTRUSTED,
            "not issued for a server",
        ),
        case(
            "ca",
            signed("ca", "root", "rsa:2048", "basicConstraints=CA:TRUE", "-days 30"),
            &[],
            UNTRUSTED,
            "an authority's own certificate",
        ),
        case(
            "old",
            plain("old"),
            &["-tls1", "-cipher", "ALL:@SECLEVEL=0"],
            INCOMPATIBLE,
            "version 1.2 or 1.3",
        ),
        case(
            "older",
            plain("older"),
            &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
            INCOMPATIBLE,
            "version 1.2 or 1.3",
        ),
        case(
            "cipher",
            plain("cipher"),
            &["-tls1_2", "-cipher", "AES128-SHA:@SECLEVEL=0"],
            INCOMPATIBLE,
            "no cipher suite",
        ),
        case(
            "group",
            plain("group"),
            &["-tls1_3", "-groups", "ffdhe2048"],
            INCOMPATIBLE,
            "key exchange",
        ),
    ]
}

/// An `openssl s_server`, ended with the test.
struct Server(Child);

impl Server {
    /// Starts it and waits for its port.
    fn start(folder: &Path, case: &Case) -> (Self, u16) {
        let Case { name, serves, .. } = case;
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", "127.0.0.1:0", "-www"])
            .args(["-cert_chain", &format!("{name}.pem"), "-cert", &format!("{name}.pem")])
            .args(["-key", &format!("{name}.key")])
            .args(*serves)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = said.find_map(|line| line.ok()?.strip_prefix("ACCEPT 127.0.0.1:")?.parse().ok());
        let port = port.unwrap_or_else(|| panic!("{name} does not listen"));
        // Whoever is not read from blocks in the end.
        std::thread::spawn(move || said.for_each(drop));
        (Self(child), port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn shell(folder: &Path, script: &str) {
    let ran =
        Command::new("sh").args(["-ec", script]).current_dir(folder).output_in_time().unwrap();
    assert!(ran.status.success(), "{script}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[tokio::test]
async fn a_server_that_is_not_believed_is_told_why() {
    if !is_installed("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    shell(folder.path(), ROOT);
    shell(folder.path(), &signed("fine", "root", "rsa:2048", "", "-days 30"));
    let fine = Case { name: "fine", made: String::new(), serves: &[], code: "", reason: "" };
    let (fine, port) = Server::start(folder.path(), &fine);
    let root = std::fs::read_to_string(folder.path().join("root.pem")).unwrap();
    let mut setup = World::allowing(&["{host: allowed.test}", "{host: \"*.bad.test\"}"])
        .file("openssl.pem", &root)
        .root("openssl.pem")
        .pin("fine.bad.test", format!("127.0.0.1:{port}"));
    let mut servers = vec![fine];
    for case in cases() {
        shell(folder.path(), &case.made);
        let (server, port) = Server::start(folder.path(), &case);
        setup = setup.pin(&format!("{}.bad.test", case.name), format!("127.0.0.1:{port}"));
        servers.push(server);
    }
    let world = setup.start().await;
    // The others fail for their own reason, not for one they share.
    assert_eq!(world.sandbox.get("https://fine.bad.test/").await.status, 200);
    let mut wrong = Vec::new();
    for Case { name, code, reason, .. } in cases() {
        let host = format!("{name}.bad.test");
        let reply = world.sandbox.get(&format!("https://{host}/")).await;
        if reply.status != 502 || reply.code() != code || !reply.text().contains(reason) {
            wrong.push(format!("{name}: {}", reply.text()));
            continue;
        }
        let record = world.audit.refused(&host, code).await;
        let said = record["error.message"].as_str().unwrap_or_default();
        if !said.contains(reason) {
            wrong.push(format!("the record of {name}: {record}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    world.end().await;
}
