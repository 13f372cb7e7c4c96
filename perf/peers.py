#!/usr/bin/env python3
"""The same work on other databases, as far as they are installed.

    cargo run --release -p strandline-perf -- --write-data DIR
    perf/peers.py --data DIR [--json FILE]

or `strandline-perf --peers`, which also prints Strandline's own line of the same run. VictoriaMetrics and InfluxDB
come from Debian (`apt install victoria-metrics influxdb`) and are started and killed here, on free ports of the
loopback, in temporary folders; ClickHouse and DuckDB from PyPI (`pip install chdb-core duckdb`) run in a process
of Python, and so does SQLite, which Python brings. What is not installed is named as skipped.

Each load is timed until all rows are visible to a question. Each question runs twice to warm up and is then timed
over a kept connection; the answers are held against meta.json, so that a fast wrong answer is an error.
"""

import argparse
import concurrent.futures
import csv
import importlib.util
import json
import math
import mmap
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

BATCH_LINES = 10_000
DEADLINE_S = 300


def say(text):
    print(f"  {text}", file=sys.stderr, flush=True)


class Progress:
    """A line now and then."""

    def __init__(self, what, total):
        self.what, self.total, self.done, self.shown = what, total, 0, time.monotonic()
        self.lock = threading.Lock()

    def add(self, n):
        with self.lock:
            self.done += n
            now = time.monotonic()
            if now - self.shown >= 2:
                self.shown = now
                say(f"{self.what}: {100 * self.done // self.total} %")


def bytes_under(folder):
    """Bytes of the files in a folder, holes left out; a file that goes meanwhile counts nothing."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                stat = os.lstat(os.path.join(path, name))
                total += min(stat.st_size, stat.st_blocks * 512)
            except FileNotFoundError:
                pass
    return total


def settled_bytes(folder, quiet_s):
    """Bytes once they have not changed for a while."""
    last, since, began = None, time.monotonic(), time.monotonic()
    while time.monotonic() - began < DEADLINE_S:
        now = bytes_under(folder)
        if now != last:
            last, since = now, time.monotonic()
        elif time.monotonic() - since >= quiet_s:
            break
        time.sleep(0.2)
    return last


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Http:
    """One kept connection; little between the socket and the clock."""

    def __init__(self, port):
        self.port = port
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def request(self, method, path, params=None, body=b""):
        if params:
            path += "?" + urllib.parse.urlencode(params)
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)
        return self._answer()

    def _more(self, data):
        chunk = self.socket.recv(1 << 20)
        if not chunk:
            raise OSError("the server closed the connection")
        return data + chunk

    def _answer(self):
        data = b""
        while b"\r\n\r\n" not in data:
            data = self._more(data)
        head, rest = data.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split(" ")[1])
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = b""
            while True:
                while b"\r\n" not in rest:
                    rest = self._more(rest)
                size, rest = rest.split(b"\r\n", 1)
                size = int(size, 16)
                while len(rest) < size + 2:
                    rest = self._more(rest)
                body, rest = body + rest[:size], rest[size + 2 :]
                if size == 0:
                    break
        else:
            size = 0 if status == 204 else int(headers.get("content-length", "0"))
            while len(rest) < size:
                rest = self._more(rest)
            body = rest
        if status >= 300:
            raise OSError(f"HTTP {status}: {body[:300].decode('utf-8', 'replace')}")
        return body


class Data:
    """What `strandline-perf --write-data` wrote."""

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, "meta.json")) as f:
            self.meta = json.load(f)
        self.fields = self.meta["fields"]
        self.from_ms, self.end_ms = self.meta["from_ms"], self.meta["to_ms"] + 1
        self.hour_from_ms, self.hour_end_ms = self.meta["hour_from_ms"], self.meta["hour_to_ms"] + 1
        self.host, self.above = self.meta["asked_host"], self.meta["above"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def batches(self, lines=BATCH_LINES):
        """Byte ranges of cpu.lp with this many lines each."""
        ranges, start, n = [], 0, 0
        with open(self.path("cpu.lp"), "rb") as f:
            at = 0
            for line in f:
                at += len(line)
                n += 1
                if n == lines:
                    ranges.append((start, at))
                    start, n = at, 0
            if n:
                ranges.append((start, at))
        return ranges

    def check(self, question, numbers):
        expected = self.meta["expected"][question]
        numbers = list(numbers)
        total = math.fsum(numbers)
        if len(numbers) != expected["numbers"] or not math.isclose(total, expected["sum"], rel_tol=1e-9):
            raise ValueError(
                f"question {question}: {len(numbers)} numbers of sum {total}, "
                f"not {expected['numbers']} of sum {expected['sum']}"
            )

    def iso(self, ms):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(ms // 1000))


def timed(data, rounds, questions):
    """Median ms of each question; `questions` maps a letter to (ask, numbers of an answer)."""
    result = {}
    for letter, (ask, numbers) in questions.items():
        times = []
        for i in range(rounds + 2):
            began = time.perf_counter()
            answer = ask()
            if i >= 2:
                times.append((time.perf_counter() - began) * 1e3)
            data.check(letter, numbers(answer))
        result[letter] = statistics.median(times)
    return result


class Started:
    """A server process in a folder of its own, killed at the end."""

    def __init__(self, command, port, folder, ready):
        self.port, self.folder = port, folder
        self.log = open(os.path.join(folder, "log"), "wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, cwd=folder
        )
        began = time.monotonic()
        while True:
            try:
                Http(port).request("GET", ready)
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() - began > 30:
                    self.stop()
                    with open(os.path.join(folder, "log"), "rb") as log:
                        last = log.read()[-300:].decode("utf-8", "replace").strip()
                    raise OSError(f"{command[0]} does not start: {last}") from None
                time.sleep(0.05)

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def post_lines(data, port, path, params, connections, what):
    """Posts all batches, shared out over some connections; seconds."""
    ranges = data.batches()
    progress = Progress(what, len(ranges))
    errors = []
    with open(data.path("cpu.lp"), "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as lines:

        def send(mine):
            try:
                http = Http(port)
                for start, end in mine:
                    http.request("POST", path, params, lines[start:end])
                    progress.add(1)
            except Exception as e:  # pylint: disable=broad-except
                errors.append(e)

        threads = [threading.Thread(target=send, args=(ranges[i::connections],)) for i in range(connections)]
        began = time.perf_counter()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if errors:
            raise errors[0]
        return began


def until_visible(count, expected):
    """Asks until all is there."""
    began = time.monotonic()
    while True:
        seen = count()
        if seen == expected:
            return
        if time.monotonic() - began > 60:
            raise ValueError(f"{seen} values are visible of {expected}")
        time.sleep(0.02)


class Server:
    """A peer that is a server: load over 1 and 2 connections, the better counts."""

    binary = name = durable = ""
    quick = False

    def missing(self):
        return None if shutil.which(self.binary) else f"{self.binary} is not installed"

    def measure(self, data, float_data, rounds, work):
        result = {"peer": self.version(), "durable": self.durable, "rows_per_s": 0}
        for connections in (1, 2):
            with self.start(work) as server:
                rate = self.load(server, data, connections)
                if rate > result["rows_per_s"]:
                    result["rows_per_s"] = rate
                    result["way"] = f"line protocol over HTTP, {connections} connection{'s'[: connections - 1]}"
                if connections == 2:
                    say(f"{self.name}: questions")
                    result["ms"] = timed(data, rounds, self.questions(Http(server.port), data))
                    say(f"{self.name}: waiting for its merges")
                    result["bytes_per_value"] = self.merged_bytes(server) / data.meta["values"]
        if float_data:
            with self.start(work) as server:
                self.load(server, float_data, 1)
                say(f"{self.name}: waiting for its merges")
                result["float_bytes_per_value"] = self.merged_bytes(server) / float_data.meta["values"]
        return [result]


class VictoriaMetrics(Server):
    binary, name, durable = "victoria-metrics", "VictoriaMetrics", "no: written within seconds, no log"

    def version(self):
        out = subprocess.run([self.binary, "-version"], capture_output=True, text=True, check=True)
        words = (out.stdout + out.stderr).replace("-", " ").split()
        number = next((w for w in words if w.count(".") == 2 and w.strip("v")[:1].isdigit()), "")
        if not number:
            shown = subprocess.run(
                ["dpkg-query", "-W", "-f", "${Version}", "victoria-metrics"], capture_output=True, text=True, check=False
            ).stdout
            number = shown.split("+")[0]
        return f"{self.name} {number.strip('v')}".strip()

    def start(self, work):
        folder, port = tempfile.mkdtemp(prefix="victoria-", dir=work), free_port()
        command = [
            self.binary,
            f"-storageDataPath={folder}/data",
            f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=100y",
            "-loggerLevel=WARN",
        ]
        return Started(command, port, folder, "/health")

    def ask(self, http, path, **params):
        # Its cache of finished answers would measure nothing but itself.
        return json.loads(http.request("GET", f"/api/v1/{path}", {**params, "nocache": "1"}))["data"]["result"]

    def load(self, server, data, connections):
        began = post_lines(data, server.port, "/write", None, connections, f"{self.name}: loading")
        http = Http(server.port)
        http.request("GET", "/internal/force_flush")
        end = (data.end_ms - 1) / 1e3

        def count():
            result = self.ask(http, "query", query='sum(count_over_time({__name__=~"cpu_.*"}[24h]))', time=end)
            return int(float(result[0]["value"][1])) if result else 0

        until_visible(count, data.meta["values"])
        return data.meta["rows"] / (time.perf_counter() - began)

    def questions(self, http, data):
        end = (data.end_ms - 1) / 1e3
        # A window ends with its own moment: a bucket of [0, 60) s is asked for at 59.999 s.
        ranged = lambda r: [float(v) for s in r for _, v in s["values"]]
        instant = lambda r: [float(s["value"][1]) for s in r]
        return {
            "a": (
                lambda: self.ask(
                    http,
                    "query_range",
                    query=f'max_over_time(cpu_usage_user{{hostname="{data.host}"}}[1m])',
                    start=data.hour_from_ms / 1e3 + 59.999,
                    end=data.hour_end_ms / 1e3,
                    step="60s",
                ),
                ranged,
            ),
            "b": (
                lambda: self.ask(
                    http,
                    "query_range",
                    query="avg_over_time(cpu_usage_user[1h])",
                    start=data.from_ms / 1e3 + 3599.999,
                    end=data.end_ms / 1e3,
                    step="1h",
                ),
                ranged,
            ),
            "c": (lambda: self.ask(http, "query", query='{__name__=~"cpu_usage_.*"}', time=end), instant),
            "d": (lambda: self.ask(http, "query", query="avg(avg_over_time(cpu_usage_user[24h]))", time=end), instant),
        }

    def merged_bytes(self, server):
        http = Http(server.port)
        http.request("GET", "/internal/force_flush")
        http.request("GET", "/internal/force_merge")
        # Rows and index; its caches, which it writes when it stops, are no part of the data.
        quiet_s = 0.1 if self.quick else 4
        return sum(settled_bytes(os.path.join(server.folder, "data", part), quiet_s) for part in ("data", "indexdb"))


class InfluxDB(Server):
    binary, name, durable = "influxd", "InfluxDB", "yes, each batch"

    def version(self):
        out = subprocess.run([self.binary, "version"], capture_output=True, text=True, check=True).stdout
        number = next((w.strip("v") for w in out.split() if w.strip("v")[:1].isdigit()), "")
        return f"{self.name} {number}".strip()

    def start(self, work):
        folder, port, rpc = tempfile.mkdtemp(prefix="influx-", dir=work), free_port(), free_port()
        config = os.path.join(folder, "influxdb.conf")
        with open(config, "w") as f:
            # It compacts in full after four hours without writes; here after two seconds.
            f.write(
                f"""reporting-disabled = true
bind-address = "127.0.0.1:{rpc}"
[meta]
dir = "{folder}/meta"
[data]
dir = "{folder}/data"
wal-dir = "{folder}/wal"
cache-snapshot-write-cold-duration = "2s"
compact-full-write-cold-duration = "2s"
[http]
bind-address = "127.0.0.1:{port}"
log-enabled = false
[monitor]
store-enabled = false
"""
            )
        return Started([self.binary, "-config", config], port, folder, "/ping")

    def ask(self, http, q, method="GET"):
        answer = json.loads(http.request(method, "/query", {"db": "perf", "epoch": "ms", "q": q}))
        result = answer["results"][0]
        if "error" in result:
            raise OSError(result["error"])
        return result.get("series", [])

    def load(self, server, data, connections):
        http = Http(server.port)
        self.ask(http, "CREATE DATABASE perf", "POST")
        began = post_lines(data, server.port, "/write", {"db": "perf"}, connections, f"{self.name}: loading")

        def count():
            series = self.ask(http, "SELECT count(usage_user) FROM cpu")
            return series[0]["values"][0][1] if series else 0

        until_visible(count, data.meta["rows"])
        return data.meta["rows"] / (time.perf_counter() - began)

    def questions(self, http, data):
        hour = f"time >= {data.hour_from_ms}ms AND time < {data.hour_end_ms}ms"
        day = f"time >= {data.from_ms}ms AND time < {data.end_ms}ms"
        numbers = lambda r: [v for s in r for row in s["values"] for v in row[1:] if v is not None]
        ask = lambda q: (lambda: self.ask(http, q), numbers)
        return {
            "a": ask(f"SELECT max(usage_user) FROM cpu WHERE hostname = '{data.host}' AND {hour} GROUP BY time(1m)"),
            "b": ask(f"SELECT mean(usage_user) FROM cpu WHERE {day} GROUP BY time(1h), hostname"),
            "c": ask("SELECT last(*) FROM cpu GROUP BY hostname"),
            "d": ask("SELECT mean(usage_user) FROM cpu"),
            "e": ask(f"SELECT mean(usage_user) FROM cpu WHERE usage_system > {data.above}"),
        }

    def merged_bytes(self, server):
        # The log goes once the snapshot is written; full compaction looks once in ten seconds or so.
        return settled_bytes(server.folder, 0.1 if self.quick else 15)


def parquet(data, work):
    """cpu.csv as Parquet, by whichever of the two is installed; not timed."""
    out = os.path.join(work, f"{data.meta['mode']}.parquet")
    if not os.path.exists(out):
        if importlib.util.find_spec("duckdb"):
            import duckdb

            csv_file = data.path("cpu.csv")
            types = "{" + ", ".join(f"'{f}': 'DOUBLE'" for f in data.fields) + "}"
            duckdb.connect().execute(
                f"COPY (SELECT * FROM read_csv('{csv_file}', types={types})) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"
            )
        else:
            from chdb import session

            columns = "ts DateTime, hostname String, region String, datacenter String, " + ", ".join(
                f"{f} Float64" for f in data.fields
            )
            session.Session().query(
                f"INSERT INTO FUNCTION file('{out}', Parquet) SELECT * FROM file('{data.path('cpu.csv')}', CSVWithNames, '{columns}')"
            )
    return out


class Library:
    """A peer inside a process of Python: each way in a process of its own, so that a crash costs that way."""

    module = name = ""
    ways = ()

    def missing(self):
        return None if importlib.util.find_spec(self.module) else f"the Python module {self.module} is not installed"

    def measure(self, data, float_data, rounds, work):
        results = []
        context = multiprocessing.get_context("spawn")
        for way in self.ways:
            say(f"{self.name}: {way}")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                args = (data.folder, float_data and float_data.folder, rounds, work, way)
                results.append(pool.submit(self.one, *args).result(DEADLINE_S))
        return results

    def one(self, folder, float_folder, rounds, work, way):
        data = Data(folder)
        with tempfile.TemporaryDirectory(prefix=f"{self.module}-", dir=work) as home:
            result = {"way": way, "durable": self.durable}
            result["rows_per_s"], bytes_used, questions, result["peer"] = self.load(data, way, home, work)
            result["bytes_per_value"] = bytes_used / data.meta["values"]
            result["ms"] = timed(data, rounds, questions)
        if float_folder:
            # A process has one ClickHouse; a second folder needs a second process.
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                result["float_bytes_per_value"] = pool.submit(self.float_bytes, float_folder, work, way).result(DEADLINE_S)
        return result

    def float_bytes(self, folder, work, way):
        data = Data(folder)
        with tempfile.TemporaryDirectory(prefix=f"{self.module}-", dir=work) as home:
            return self.load(data, way, home, work)[1] / data.meta["values"]


class ClickHouse(Library):
    module, name, durable = "chdb", "ClickHouse", "no: no fsync by default"
    ways = ("in process, Parquet, DoubleDelta/Gorilla+ZSTD", "in process, CSV, default codecs")

    def load(self, data, way, home, work):
        from chdb import session

        db = session.Session(os.path.join(home, "data"))
        ask = lambda sql: json.loads(str(db.query(sql, "JSONCompact")))["data"]
        tuned = "Parquet" in way
        time_codec, codec = (" CODEC(DoubleDelta, ZSTD)", " CODEC(Gorilla, ZSTD)") if tuned else ("", "")
        columns = f"ts DateTime('UTC'){time_codec}, " + "".join(
            f"{tag} LowCardinality(String), " for tag in ("hostname", "region", "datacenter")
        )
        columns += ", ".join(f"{f} Float64{codec}" for f in data.fields)
        db.query("CREATE DATABASE perf ENGINE = Atomic")
        db.query(f"CREATE TABLE perf.cpu ({columns}) ENGINE = MergeTree ORDER BY (hostname, ts)")
        source = f"file('{parquet(data, work)}', Parquet)" if tuned else f"file('{data.path('cpu.csv')}', CSVWithNames)"
        began = time.perf_counter()
        db.query(f"INSERT INTO perf.cpu SELECT * FROM {source}")
        until_visible(lambda: int(ask("SELECT count() FROM perf.cpu")[0][0]), data.meta["rows"])
        rate = data.meta["rows"] / (time.perf_counter() - began)
        db.query("OPTIMIZE TABLE perf.cpu FINAL")
        used = int(ask("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'cpu'")[0][0])
        hour = f"ts >= '{data.iso(data.hour_from_ms)}' AND ts < '{data.iso(data.hour_end_ms)}'"
        last = ", ".join(f"argMax({f}, ts)" for f in data.fields)
        take = lambda skip: (lambda rows: [float(v) for r in rows for v in r[skip:]])
        questions = {
            "a": (
                lambda: ask(
                    f"SELECT toStartOfMinute(ts) AS m, max(usage_user) FROM perf.cpu "
                    f"WHERE hostname = '{data.host}' AND {hour} GROUP BY m ORDER BY m"
                ),
                take(1),
            ),
            "b": (
                lambda: ask("SELECT hostname, toStartOfHour(ts) AS h, avg(usage_user) FROM perf.cpu GROUP BY hostname, h"),
                take(2),
            ),
            "c": (lambda: ask(f"SELECT hostname, {last} FROM perf.cpu GROUP BY hostname"), take(1)),
            "d": (lambda: ask("SELECT avg(usage_user) FROM perf.cpu"), take(0)),
            "e": (lambda: ask(f"SELECT avg(usage_user) FROM perf.cpu WHERE usage_system > {data.above}"), take(0)),
        }
        version = ask("SELECT version()")[0][0]
        return rate, used, questions, f"ClickHouse {version}"


class DuckDB(Library):
    module, name, durable = "duckdb", "DuckDB", "yes, at its end"
    ways = ("in process, Parquet", "in process, CSV")

    def load(self, data, way, home, work):
        import duckdb

        path = os.path.join(home, "cpu.duckdb")
        db = duckdb.connect(path)
        types = "{" + ", ".join(f"'{f}': 'DOUBLE'" for f in data.fields) + "}"
        csv_file = data.path("cpu.csv")
        source = f"read_csv('{csv_file}', types={types})"
        if "Parquet" in way:
            source = f"read_parquet('{parquet(data, work)}')"
        ask = lambda sql: db.execute(sql).fetchall()
        began = time.perf_counter()
        ask(f"CREATE TABLE cpu AS SELECT * FROM {source}")
        until_visible(lambda: ask("SELECT count(*) FROM cpu")[0][0], data.meta["rows"])
        rate = data.meta["rows"] / (time.perf_counter() - began)
        ask("CHECKPOINT")
        # The file also holds blocks that the load has freed: they are reused, so they do not count.
        block_size, used_blocks = db.execute("SELECT block_size, used_blocks FROM pragma_database_size()").fetchone()
        used = block_size * used_blocks
        hour = f"ts >= '{data.iso(data.hour_from_ms)}' AND ts < '{data.iso(data.hour_end_ms)}'"
        last = ", ".join(f"arg_max({f}, ts)" for f in data.fields)
        take = lambda skip: (lambda rows: [v for r in rows for v in r[skip:]])
        questions = {
            "a": (
                lambda: ask(
                    f"SELECT date_trunc('minute', ts) AS m, max(usage_user) FROM cpu "
                    f"WHERE hostname = '{data.host}' AND {hour} GROUP BY m ORDER BY m"
                ),
                take(1),
            ),
            "b": (
                lambda: ask("SELECT hostname, date_trunc('hour', ts) AS h, avg(usage_user) FROM cpu GROUP BY hostname, h"),
                take(2),
            ),
            "c": (lambda: ask(f"SELECT hostname, {last} FROM cpu GROUP BY hostname"), take(1)),
            "d": (lambda: ask("SELECT avg(usage_user) FROM cpu"), take(0)),
            "e": (lambda: ask(f"SELECT avg(usage_user) FROM cpu WHERE usage_system > {data.above}"), take(0)),
        }
        return rate, used, questions, f"DuckDB {duckdb.__version__}"


class SQLite(Library):
    module, name, durable = "sqlite3", "SQLite", "yes, each 50,000 rows"
    ways = ("in process, key (hostname, ts), WAL, synchronous=FULL",)

    def load(self, data, way, home, work):
        import calendar
        import sqlite3

        path = os.path.join(home, "cpu.sqlite")
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        fields = ", ".join(f"{f} REAL" for f in data.fields)
        db.execute(
            f"CREATE TABLE cpu (hostname TEXT, ts INTEGER, region TEXT, datacenter TEXT, {fields}, "
            "PRIMARY KEY (hostname, ts)) WITHOUT ROWID"
        )
        db.execute("CREATE TABLE hosts (hostname TEXT PRIMARY KEY) WITHOUT ROWID")
        # Reading the CSV is Python's time, not SQLite's.
        rows, times = [], {}
        with open(data.path("cpu.csv"), newline="") as f:
            for r in csv.reader(f):
                if r[0] == "ts":
                    continue
                if r[0] not in times:
                    times[r[0]] = calendar.timegm(time.strptime(r[0], "%Y-%m-%d %H:%M:%S"))
                rows.append((r[1], times[r[0]], r[2], r[3], *map(float, r[4:])))
        hosts = sorted({r[0] for r in rows})
        insert = f"INSERT INTO cpu VALUES ({', '.join('?' * (4 + len(data.fields)))})"
        ask = lambda sql: db.execute(sql).fetchall()
        progress = Progress("SQLite: loading", len(rows))
        began = time.perf_counter()
        db.executemany("INSERT INTO hosts VALUES (?)", [(h,) for h in hosts])
        for i in range(0, len(rows), 50_000):
            db.execute("BEGIN")
            db.executemany(insert, rows[i : i + 50_000])
            db.execute("COMMIT")
            progress.add(len(rows[i : i + 50_000]))
        until_visible(lambda: ask("SELECT count(*) FROM cpu")[0][0], data.meta["rows"])
        rate = data.meta["rows"] / (time.perf_counter() - began)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        used = os.path.getsize(path)
        begin, end = data.hour_from_ms // 1000, data.hour_end_ms // 1000
        take = lambda skip: (lambda rows: [v for r in rows for v in r[skip:]])
        questions = {
            "a": (
                lambda: ask(
                    f"SELECT ts / 60 AS m, max(usage_user) FROM cpu "
                    f"WHERE hostname = '{data.host}' AND ts >= {begin} AND ts < {end} GROUP BY m"
                ),
                take(1),
            ),
            "b": (lambda: ask("SELECT hostname, ts / 3600 AS h, avg(usage_user) FROM cpu GROUP BY hostname, h"), take(2)),
            "c": (
                lambda: ask(
                    f"SELECT c.hostname, {', '.join(data.fields)} FROM hosts h JOIN cpu c ON c.hostname = h.hostname "
                    "AND c.ts = (SELECT max(ts) FROM cpu l WHERE l.hostname = h.hostname)"
                ),
                take(1),
            ),
            "d": (lambda: ask("SELECT avg(usage_user) FROM cpu"), take(0)),
            "e": (lambda: ask(f"SELECT avg(usage_user) FROM cpu WHERE usage_system > {data.above}"), take(0)),
        }
        return rate, used, questions, f"SQLite {sqlite3.sqlite_version}"


def table(measured, skipped):
    def number(v, digits):
        return "–" if v is None else f"{v:,.{digits}f}"

    out = [
        "| system | way in | rows/s | durable | bytes/value | two decimals | a ms | b ms | c ms | d ms | e ms |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for p in measured:
        cells = [p["peer"], p["way"], number(p["rows_per_s"], 0), p["durable"]]
        cells += [number(p["bytes_per_value"], 2), number(p.get("float_bytes_per_value"), 2)]
        cells += [number(p["ms"].get(q), 2) for q in "abcde"]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out + [""] + [f"Not measured: {s['peer']} ({s['why']})" for s in skipped])


PEERS = (VictoriaMetrics(), InfluxDB(), ClickHouse(), DuckDB(), SQLite())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="what `strandline-perf --write-data DIR` wrote")
    parser.add_argument("--float-data", help="the same with --decimals: bytes per value of it too")
    parser.add_argument("--only", help="names, separated by commas: " + ", ".join(p.name for p in PEERS))
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of which the median is taken")
    parser.add_argument("--quick", action="store_true", help="waits for no merges: sizes on disk mean nothing")
    parser.add_argument("--work", help="where the peers' folders are made; default: beside the data")
    parser.add_argument("--json", help="writes the figures into this file too")
    args = parser.parse_args()
    data = Data(os.path.abspath(args.data))
    float_data = Data(os.path.abspath(args.float_data)) if args.float_data else None
    only = {n.strip().lower() for n in args.only.split(",")} if args.only else None
    unknown = (only or set()) - {p.name.lower() for p in PEERS}
    if unknown:
        parser.error(f"no such peer: {', '.join(sorted(unknown))}")
    Server.quick = args.quick
    measured, skipped = [], []
    with tempfile.TemporaryDirectory(prefix="peers-", dir=os.path.abspath(args.work or args.data)) as work:
        for peer in PEERS:
            if only and peer.name.lower() not in only:
                continue
            why = peer.missing()
            if why is None:
                try:
                    measured += peer.measure(data, float_data, args.rounds, work)
                    continue
                except Exception as e:  # pylint: disable=broad-except
                    why = f"it failed: {type(e).__name__}: {e}"
            say(f"{peer.name} is skipped: {why}")
            skipped.append({"peer": peer.name, "why": why})
    print(table(measured, skipped))
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"measured": measured, "skipped": skipped}, f, indent=1)


if __name__ == "__main__":
    main()
