//! What a command can reach from a sandbox made of namespaces: D and H, without
//! an engine.
//!
//! Everything is tried as root's sandbox and as somebody's who is not root. Each
//! attempt has its control: the same from outside succeeds.

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::thread;

use tests::CommandDeadline as _;
use tests::available::{own_address, skip};
use tests::boxes::{Person, Programs, wait_for};

const NETWORK: &str = "version: 1\nnet: {enabled: true}\n";

fn people() -> Vec<Person> {
    let programs = Programs {
        sluice: env!("CARGO_BIN_EXE_sluice-under-test"),
        init: env!("CARGO_BIN_EXE_sluice-init-under-test"),
        probe: env!("CARGO_BIN_EXE_sluice-probe-under-test"),
        gateway: env!("CARGO_BIN_EXE_sluice-gateway-under-test"),
        launch: env!("CARGO_BIN_EXE_sluice-launch-under-test"),
    };
    [Person::with_namespaces(programs), Person::unprivileged(programs)]
        .into_iter()
        .flatten()
        .collect()
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the control connects to our own server")]
fn no_service_of_the_host_is_reached_on_any_address() {
    let service = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = service.local_addr().unwrap().port();
    thread::spawn(move || service.incoming().for_each(drop));
    let mut addresses = vec!["127.0.0.1".to_owned()];
    addresses.extend(own_address().map(|address| address.to_string()));
    for address in &addresses {
        assert!(TcpStream::connect((address.as_str(), port)).is_ok(), "{address} from outside");
    }
    let knocks: String = addresses
        .iter()
        .map(|address| {
            format!("nc -w 2 {address} {port} </dev/null >/dev/null 2>&1 && echo {address}; ")
        })
        .collect();
    for person in people() {
        for flags in [vec![], vec!["--policy".to_owned(), person.policy(NETWORK)]] {
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let ran = person.shell(&flags, &format!("{knocks} echo done"));
            assert_eq!(ran.stdout, "done\n", "{:?} {}", person.backend(), ran.stderr);
        }
    }
}

#[test]
fn every_address_is_the_gateway_and_every_other_port_is_closed() {
    for person in people() {
        let policy = person.policy(NETWORK);
        let script = "for at in 93.184.216.34:443 169.254.169.254:80 10.1.2.3:3128 1.1.1.1:853 \
                      8.8.8.8:22 100.100.100.200:8080 198.18.0.1:3128 198.18.0.1:1080; do \
                      nc -w 2 ${at%:*} ${at#*:} </dev/null >/dev/null 2>&1 && echo $at; done; true";
        let ran = person.shell(&["--policy", &policy], script);
        let reached: Vec<&str> = ran.stdout.lines().collect();
        // Proxies are where the gateway is: an address of somebody else's is refused there.
        let gateway =
            ["93.184.216.34:443", "169.254.169.254:80", "198.18.0.1:3128", "198.18.0.1:1080"];
        assert_eq!(reached, gateway, "{}", ran.stderr);
        let log = fs::read_to_string(person.evidence().unwrap().join("audit.jsonl")).unwrap();
        for refused in ["10.1.2.3", "1.1.1.1", "8.8.8.8", "100.100.100.200"] {
            let line = log.lines().find(|line| line.contains(refused)).unwrap_or(refused);
            assert!(line.contains("no_door"), "{line}");
        }
    }
}

#[test]
fn no_packet_of_any_kind_arrives_outside() {
    let server = UdpSocket::bind("0.0.0.0:0").unwrap();
    server.set_nonblocking(true).unwrap();
    let port = server.local_addr().unwrap().port();
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", ("127.0.0.1", port)).unwrap();
    let mut heard = [0; 64];
    wait_for("our own packet", || server.recv_from(&mut heard).ok());
    for person in people() {
        let policy = person.policy(NETWORK);
        let script = format!(
            "for at in 127.0.0.1 192.0.2.2 255.255.255.255; do \
             timeout 1 tftp -g -r secret -l /tmp/x $at {port} >/dev/null 2>&1; done; \
             ping -c 1 -W 1 127.0.0.1 >/dev/null 2>&1 && echo pinged; \
             nslookup leak.example 2>/dev/null | grep -c 198.18.0.1"
        );
        let ran = person.shell(&["--policy", &policy], &script);
        assert_ne!(ran.stdout.trim(), "0", "names are answered");
        assert!(!ran.stdout.contains("pinged"), "{}", ran.stdout);
        assert!(server.recv_from(&mut heard).is_err(), "a packet arrived outside");
    }
}

#[test]
fn sockets_without_a_path_stay_outside() {
    let name = format!("sluice-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listening = UnixListener::bind_addr(&address).unwrap();
    assert!(UnixStream::connect_addr(&address).is_ok());
    assert!(fs::read_to_string("/proc/net/unix").unwrap().contains(&name));
    for person in people() {
        let ran = person.shell(&[], &format!("cat /proc/net/unix | grep {name}; echo done"));
        assert_eq!(ran.stdout, "done\n", "{}", ran.stderr);
    }
}

#[test]
fn no_process_of_the_host_is_seen() {
    let _other = Ended(Command::new("sleep").arg("86421").stdout(Stdio::null()).spawn().unwrap());
    let seen = Command::new("pgrep").args(["-f", "^sleep 86421"]).output_in_time().unwrap();
    assert!(seen.status.success(), "from outside it is seen");
    for person in people() {
        let script = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -c '8642[1] '; \
                      ls /proc | grep -c '^[0-9]'; ls -d /proc/1/root/etc /proc/1/cwd 2>/dev/null";
        let ran = person.shell(&[], script);
        let lines: Vec<&str> = ran.stdout.lines().collect();
        assert_eq!(lines[0], "0", "{}", ran.stdout);
        assert!(lines[1].parse::<u32>().unwrap() < 10, "{}", ran.stdout);
        assert_eq!(lines.len(), 2, "the first process is nobody's to look into: {}", ran.stdout);
    }
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn nothing_of_a_home_or_of_the_machines_secrets_is_inside() {
    for person in people() {
        let home = person.project().parent().unwrap().to_owned();
        fs::create_dir_all(home.join(".ssh")).unwrap();
        fs::write(home.join(".ssh/id_rsa"), "hunter2").unwrap();
        fs::set_permissions(home.join(".ssh/id_rsa"), fs::Permissions::from_mode(0o644)).unwrap();
        let key = home.join(".ssh/id_rsa");
        let script = format!(
            "cat {0} /proc/self/root{0} /proc/1/root{0} ../..{0} 2>/dev/null; \
             ls /root /var/run/docker.sock /run/docker.sock /run/dbus /etc/shadow /etc/ssh \
             /etc/ssl/private /var/lib 2>/dev/null; ls /home; echo done",
            key.display()
        );
        for image in ["host", tests::boxes::unpacked().unwrap()] {
            let ran = person.shell(&["--image", image], &script);
            assert_eq!(ran.stdout, "agent\ndone\n", "{image} {}", ran.stderr);
        }
    }
}

#[test]
fn what_escapes_are_made_of_fails() {
    for person in people() {
        for attempt in [
            "unshare -U true",
            "unshare -n true",
            "unshare -m true",
            "nsenter -t 1 -m true",
            "mount -t tmpfs none /tmp",
            "mount -o remount,rw /",
            "umount /proc/sys",
            "chroot / true",
            "mknod /tmp/disk b 8 0",
            "echo 1 >/proc/sys/kernel/sysrq",
            "echo x >/proc/sys/kernel/core_pattern",
            "echo b >/proc/sysrq-trigger",
            "echo x >/sys/kernel/uevent_helper",
            "echo 1 >/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "echo x >/etc/passwd",
            "touch /x",
            "touch /dev/x",
            "touch /usr/x",
            "echo x >/run/sluice/init",
            "head -c 1 /proc/kcore | grep -q .",
            "head -c 1 /proc/kallsyms | grep -q .",
            "dmesg",
            "cat /dev/mem",
            "cat /proc/1/environ",
            "kill -9 1; sleep 1; kill -0 1 && false",
            "ip link add x type dummy",
            "ip addr add 10.0.0.1/8 dev lo",
            "ip route del table local local 0.0.0.0/0",
            "hostname other",
        ] {
            let ran =
                person.shell(&[], &format!("({attempt}) >/dev/null 2>&1 && echo did it; true"));
            assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{attempt}: {}", ran.stderr);
        }
    }
}

/// By number, past every library: what must not be there is not there.
#[test]
fn system_calls_that_lead_out_are_refused() {
    if cfg!(not(target_arch = "x86_64")) || !fs::exists("/usr/bin/python3").unwrap() {
        return skip("python3");
    }
    let script = "import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
calls = {'ptrace': 101, 'mount': 165, 'keyctl': 250, 'add_key': 248, 'unshare': 272, 'setns': 308,
 'bpf': 321, 'userfaultfd': 323, 'io_uring_setup': 425, 'open_tree': 428, 'fsopen': 430,
 'perf_event_open': 298, 'init_module': 175, 'kexec_load': 246, 'process_vm_readv': 310,
 'open_by_handle_at': 304, 'pidfd_getfd': 438, 'chroot': 161, 'quotactl': 179}
for name, number in calls.items():
    ctypes.set_errno(0)
    if c.syscall(number, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1: print(name, ctypes.get_errno())
ctypes.set_errno(0); c.syscall(435, 0, 0)
print('clone3', ctypes.get_errno())
import socket
for family in (17, 38, 40, 31):
    try: socket.socket(family, socket.SOCK_DGRAM); print('open', family)
    except OSError: pass
for flag in (0x10000000, 0x40000000, 0x00020000):
    if c.syscall(56, flag | 17, 0, 0, 0, 0) != -1: print('clone', flag)
";
    for person in people() {
        let arguments =
            ["run", "--mode", "none", "--image", "host", "--", "/usr/bin/python3", "-c"];
        let ran = person.sluice(&[&arguments[..], &[script]].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "clone3 38\n"), "{}", ran.stderr);
    }
}

#[test]
fn a_program_that_would_make_anybody_root_does_not() {
    let tools = tempfile::tempdir().unwrap();
    fs::set_permissions(tools.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let id = tools.path().join("id");
    fs::copy("/usr/bin/id", &id).unwrap();
    fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).unwrap();
    let outside = Command::new("setpriv")
        .args(["--reuid", "1500", "--regid", "1500", "--clear-groups", id.to_str().unwrap(), "-u"])
        .output_in_time();
    let outside = String::from_utf8_lossy(&outside.unwrap().stdout).into_owned();
    if outside != "0\n" {
        return skip("a place for programs of root's");
    }
    for person in people() {
        let policy = person.policy(&format!(
            "version: 1\nfs: {{mounts: [{{source: {}, target: /tools, mode: ro}}]}}\n",
            tools.path().display()
        ));
        let flags = ["--policy", &policy, "--image", "host"];
        let ran = person.shell(&flags, "/tools/id -u; grep -E '^(Cap|NoNew)' /proc/self/status");
        let mut lines = ran.stdout.lines();
        assert_ne!(lines.next(), Some("0"), "{}", ran.stderr);
        let status: Vec<&str> = lines.filter_map(|line| line.split('\t').nth(1)).collect();
        let none = "0000000000000000";
        assert_eq!(status, [none, none, none, none, none, "1"], "{}", ran.stderr);
    }
}

#[test]
fn a_gateway_that_is_killed_takes_the_network_along() {
    for person in people() {
        let policy = person.policy(NETWORK);
        // A run would end with it; a session goes on without a runner.
        let started = person.sluice(&["session", "start", "--mode", "none", "--policy", &policy]);
        assert_eq!(started.code, 0, "{}", started.stderr);
        let name = started.stdout.trim();
        let knock = |script: &str| {
            let all = format!("knock() {{ nc -w 2 $1 $2 </dev/null >/dev/null 2>&1; }}; {script}");
            person.sluice(&["session", "exec", name, "--", "sh", "-c", &all]).stdout
        };
        assert_eq!(knock("knock gateway.sluice 3128 && echo before"), "before\n");
        // Returns when its sockets are closed too: that is later than most of it.
        let run = person.evidence().unwrap();
        person.kill_gateway(run.file_name().unwrap().to_str().unwrap());
        let script =
            "knock gateway.sluice 3128 && echo after; knock 93.184.216.34 443 && echo after
                      timeout 3 nslookup a.test >/dev/null 2>&1 && echo after; echo done";
        assert_eq!(knock(script), "done\n");
        let stopped = person.sluice(&["session", "stop", name]);
        assert_eq!(stopped.code, 0, "{}", stopped.stderr);
    }
}
