"""What stands around every proxy: certificates, an origin, a name server, and a view of the system.

A proxy is started in a mount namespace of its own, where the system's resolver is the
name server of the harness, and the system's CAs have the origin's among them. Nothing
outside that namespace changes.
"""

import pathlib
import subprocess

from processes import check_free, wait_for_port
from workloads import DENIED_HOST

ORIGIN_ADDRESS, ORIGIN_PORT = "127.0.0.77", 443
ORIGIN, COUNTERS, NAME_SERVER = f"{ORIGIN_ADDRESS}:{ORIGIN_PORT}", f"{ORIGIN_ADDRESS}:8077", f"{ORIGIN_ADDRESS}:53"
ZONE = "bench.test"
SYSTEM_CAS = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


class Environment:
    """Files in a folder, and two servers."""

    def __init__(self, out, programs, processes):
        """`programs` is the folder that set-up filled, with `pbench` in it."""
        self.out, self.processes = out, processes
        self.pbench = str(programs / "pbench")
        self.certificates, self.view, self.work = out / "certs", out / "env", out / "work"
        self.origin = None
        self.placeholders = {
            "bench": str(pathlib.Path(__file__).resolve().parent),
            "ca_bundle": str(self.view / "ca-bundle.crt"),
            "certs": str(self.certificates),
            "denied": DENIED_HOST,
            "mitmproxy": str(programs.parent / "mitmproxy"),
            "origin_ip": ORIGIN_ADDRESS,
            "programs": str(programs),
            "zone": ZONE,
        }

    def prepare(self):
        """Makes the files that are missing, and starts the servers."""
        check_free(ORIGIN_ADDRESS, ORIGIN_PORT)
        self.view.mkdir(parents=True, exist_ok=True)
        self._make_certificates()
        self._make_view()
        certificate, key = self.certificates / "origin.pem", self.certificates / "origin.key"
        origin = ["origin", "--listen", ORIGIN, "--admin", COUNTERS, "--cert", certificate, "--key", key]
        self.origin = self.processes.start([self.pbench, *origin], self.out / "origin.log")
        names = ["dns", "--listen", NAME_SERVER, "--zone", "test", "--addr", ORIGIN_ADDRESS]
        self.processes.start([self.pbench, *names], self.out / "dns.log")
        try:
            wait_for_port(ORIGIN_ADDRESS, ORIGIN_PORT, 10, self.origin)
        except RuntimeError as why:
            log = (self.out / "origin.log").read_text().strip()
            raise RuntimeError(f"the origin does not start: {why}: {log}") from why

    def entered(self, *command):
        """The words that run a command in a proxy's view of the system."""
        return ["unshare", "--mount", "--propagation", "private", "--", str(self.view / "enter.sh"), *command]

    def _make_certificates(self):
        if not (self.certificates / "proxy-ca.pem").exists():
            subprocess.run([self.pbench, "gencerts", "--dir", self.certificates, "--zone", ZONE], check=True)
        # A key that signs for this test alone; proxies that drop their privileges read it.
        (self.certificates / "proxy-ca.key").chmod(0o644)

    def _make_view(self):
        hosts = [f"{ORIGIN_ADDRESS} {name}.{ZONE}\n" for name in ("a", "b")]
        system = SYSTEM_CAS.read_text() if SYSTEM_CAS.exists() else ""
        files = {
            "resolv.conf": f"nameserver {ORIGIN_ADDRESS}\noptions timeout:2 attempts:2\n",
            "hosts": "127.0.0.1 localhost\n" + "".join(hosts),
            "ca-bundle.crt": system + (self.certificates / "origin-ca.pem").read_text(),
        }
        for name, text in files.items():
            (self.view / name).write_text(text)
        covered = {"resolv.conf": "/etc/resolv.conf", "hosts": "/etc/hosts"}
        if system:
            covered["ca-bundle.crt"] = SYSTEM_CAS
        mounts = [f'mount --bind "{self.view / name}" "$(readlink -f {path})"\n' for name, path in covered.items()]
        enter = self.view / "enter.sh"
        enter.write_text("#!/bin/sh\nset -e\n" + "".join(mounts) + 'exec "$@"\n')
        enter.chmod(0o755)
