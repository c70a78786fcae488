"""The mixed load of `soak`: what clients do to one gateway in a round, all at the same time.

Each load is short, is bounded, and comes again after a rest until the round is
over. Host names of new connections and of refusals never come twice, so that no
cache can keep all of them. Some clients are killed while they are being answered.
"""

import collections
import itertools
import subprocess
import threading
import time

MIB = 1 << 20


class Load:
    """One load: what the load generator is told, how long it rests, and when it is killed."""

    def __init__(self, name, words, rest, killed_after=None):
        self.name, self.words, self.rest, self.killed_after = name, words.split(), rest, killed_after


LOADS = [
    Load("keep-alive, 64 connections", "get --conns 64 --duration 1 --warmup 0", rest=8),
    Load("HTTP/2, 32 streams", "get --h2 --streams 32 --duration 1 --warmup 0", rest=8),
    Load("new connections", "conn --conns 8 --count 400", rest=3),
    Load("new host names", "conn --conns 4 --count 400 --many {new}x", rest=3),
    Load("refused hosts", "deny --conns 2 --count 300 --host {new}.deny.test", rest=2),
    Load("downloads", f"download --conns 2 --bytes {32 * MIB}", rest=4),
    Load("uploads", f"upload --conns 2 --bytes {16 * MIB}", rest=4),
    Load("event streams", "sse --conns 8 --events 300 --every 10", rest=2),
    Load("held connections", "idle --conns 200 --duration 3", rest=2),
    Load("killed in a download", f"download --conns 4 --bytes {4096 * MIB}", rest=6, killed_after=1),
    Load("killed in an upload", f"upload --conns 4 --bytes {4096 * MIB}", rest=6, killed_after=1),
    Load("killed among requests", "get --conns 32 --duration 60 --warmup 0", rest=6, killed_after=1),
    # The origin hangs up when more than twenty streams are reset before it saw them, and
    # others' requests are on that connection too.
    Load("killed among streams", "get --h2 --streams 16 --duration 60 --warmup 0", rest=6, killed_after=1),
    Load("killed in event streams", "sse --conns 8 --events 6000 --every 10", rest=6, killed_after=3),
    Load("killed while held", "idle --conns 100 --duration 60", rest=6, killed_after=2),
]
# The largest of the gateway's caches are 2,048 leaves and 4,096 destinations.
WARM_UP = Load("new host names", "conn --conns 8 --count 10000 --many {new}x", rest=0)
# A load that takes longer has failed.
LIMIT_SECONDS = 120


class Mix:
    """Drives the loads against a gateway, and adds up what they say."""

    def __init__(self, gateway):
        self.gateway = gateway
        self.answered, self.times, self.killed = (collections.Counter() for _ in range(3))
        self.errors = []
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def warm_up(self):
        """Fills every cache that is filled by host names."""
        self._once(WARM_UP)

    def round(self, seconds, meanwhile):
        """All loads for so long; `meanwhile` is called until the last has ended."""
        end = time.monotonic() + seconds
        threads = [threading.Thread(target=self._repeat, args=(load, end), daemon=True) for load in LOADS]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            meanwhile()
        for thread in threads:
            thread.join()

    def _repeat(self, load, end):
        while time.monotonic() < end:
            self._once(load)
            time.sleep(max(0, min(load.rest, end - time.monotonic())))

    def _once(self, load):
        with self._lock:
            number = next(self._numbers)
        words = [word.replace("{new}", f"soak{number}") for word in load.words]
        try:
            result = self.gateway.load(words, limit=load.killed_after or LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            with self._lock:
                if load.killed_after:
                    self.killed[load.name] += 1
                else:
                    self.errors.append(f"{load.name}: no end after {LIMIT_SECONDS} s")
            return
        except RuntimeError as why:
            with self._lock:
                self.errors.append(f"{load.name}: {why}")
            return
        with self._lock:
            self.times[load.name] += 1
            self.answered[load.name] += answers(words, result)
            if result["errors"]:
                notes = [note for note in result["notes"] if note.startswith("error")]
                self.errors.append(f"{load.name}: {result['errors']} errors, such as {notes[:1]}")


def answers(words, result):
    """How many requests a load had an answer to."""
    match words[0]:
        # One request on each connection.
        case "download" | "upload" | "sse":
            return int(words[words.index("--conns") + 1]) - result["errors"]
        case "idle":
            return result["idle"]["held"]
        case _:
            return result["ops"]
