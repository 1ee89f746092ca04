"""A cluster that is gone, slow, or talks nonsense; and secrets, which nobody is told."""

from __future__ import annotations

import logging
import re
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import certifi
import pytest
import trustme

from statelake.pipelines.live.cluster import FlinkCluster
from statelake.pipelines.live.connection import LARGEST_ANSWER, ConnectionSettings
from statelake.state_core.errors import (
    ClusterError,
    DeclarationError,
    FlinkJobError,
    NotFoundError,
    StateError,
    UnreachableClusterError,
)
from tests.support.fake_rest import Answer, FakeRest

JOB = "0123456789abcdef" * 2
TRIGGER = "f" * 32
RUNNING = {
    "jid": JOB, "name": "orders", "state": "RUNNING",
    "vertices": [{"parallelism": 2, "maxParallelism": 128, "status": "RUNNING"}],
}  # fmt: skip
SUSPENDED = {
    "status": {"id": "COMPLETED"},
    "operation": {
        "failure-cause": {
            "class": "java.util.concurrent.CompletionException",
            "stack-trace": "java.util.concurrent.CompletionException: x\n\tat a.B.c(B.java:1)\n"
            "Caused by: org.apache.flink.runtime.checkpoint.CheckpointException:"
            " Checkpoint Coordinator is suspending.\n\tat a.B.c(B.java:1)\n",
        }
    },
}
DONE = {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/savepoints/sp"}}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits long between two tries; no proxy stands before loopback."""
    monkeypatch.setattr("statelake.pipelines.live.connection.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("statelake.pipelines.live.cluster.PAUSE_SECONDS", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def trickle(connection: socket.socket, answer: bytes) -> None:
    """The beginning of an answer, and the rest of it for ever, a little at a time."""
    beginning, _, rest = answer.partition(b"...")
    connection.sendall(beginning)
    while True:
        connection.sendall(rest)
        time.sleep(0.05)


def flood(connection: socket.socket, answer: bytes) -> None:
    """The same, as fast as it goes."""
    beginning, _, rest = answer.partition(b"...")
    connection.sendall(beginning)
    while True:
        connection.sendall(rest * 10_000)


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKS = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@contextmanager
def endless(answer: bytes, send: Callable[[socket.socket, bytes], None]) -> Iterator[str]:
    """The URL of a server whose answers have no end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection, suppress(OSError):
                        connection.recv(1 << 16)
                        send(connection, answer)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    "answer",
    [
        b"...HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 ...O",
        HEAD + b"X-Word: ...a",
        CHUNKS + b"1;x=...a",
        CHUNKS + b"...1\r\n \r\n",
        HEAD + b"\r\n... ",
        HEAD + b"Content-Length: 1000000\r\n\r\n... ",
    ],
)
def test_a_call_ends_in_time_whatever_comes(answer: bytes) -> None:
    """Each byte begins the time of a socket anew, and not that of a call."""
    with endless(answer, trickle) as url:
        cluster = FlinkCluster(ConnectionSettings(url, timeout=0.3))
        cluster.connection.retries = 0
        assert "no answer within 0.3 s" in failure(cluster.jobs, UnreachableClusterError)


def test_a_handshake_ends_in_time() -> None:
    """TLS that says hello for ever, a byte at a time."""
    with endless(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb\x03\x03...a", trickle) as url:
        cluster = FlinkCluster(ConnectionSettings(url.replace("http", "https"), timeout=0.3))
        cluster.connection.retries = 0
        assert "no answer within 0.3 s" in failure(cluster.jobs, UnreachableClusterError)


@pytest.mark.parametrize(
    "answer",
    [b"...HTTP/1.1 100 Continue\r\n\r\n", CHUNKS + b"...1\r\n \r\n"],
)
def test_what_is_around_an_answer_is_bounded(
    answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast it comes: as much is read as an answer may have."""
    monkeypatch.setattr("statelake.pipelines.live.connection.LARGEST_ANSWER", 1 << 17)
    with endless(answer, flood) as url:
        cluster = FlinkCluster(ConnectionSettings(url, timeout=60))
        cluster.connection.retries = 0
        assert re.search("do not end|more than 0 MiB", failure(cluster.jobs))


def test_an_answer_of_very_many_values_is_not_parsed() -> None:
    """Each value takes many times its letters."""
    with FakeRest([Answer("[" + "{}," * 2_000_000 + "{}]")]) as server:
        assert "more than 1048576 values" in failure(client(server).jobs)


def client(server: FakeRest, **settings: object) -> FlinkCluster:
    """A client that is in a hurry."""
    made = ConnectionSettings(server.url, **{"timeout": 5.0, **settings})  # type: ignore[arg-type]
    return FlinkCluster(made, poll_seconds=0.001)


def failure(call: Callable[[], object], kind: type[StateError] = ClusterError) -> str:
    """What a call that fails says."""
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        Answer("<html>Welcome to nginx</html>"),
        Answer(b"\xff\xfe\x00"),
        Answer("{"),
        Answer("[" * 100_000),
        Answer(""),
        Answer("null"),
        Answer([1]),
        Answer({"jobs": None}),
        Answer({"jobs": [1]}),
        Answer({"jobs": [{"jid": "../../config", "name": "x", "state": "RUNNING"}]}),
        Answer({"jobs": [{"jid": JOB, "name": 1, "state": "RUNNING", "start-time": 1}]}),
        Answer({"jobs": [{"jid": JOB, "name": "x", "state": "RUNNING", "start-time": True}]}),
    ],
)
def test_garbage_is_an_error_that_names_the_call(answer: Answer) -> None:
    """Whatever is answered, it is no Python error, and short."""
    with FakeRest([answer]) as server:
        said = failure(client(server).jobs)
    assert f"GET {server.url}/jobs/overview" in said
    assert len(said) < 500


def test_times_that_no_calendar_has_are_none() -> None:
    """They are a picture's, not worth an error."""
    row = {"jid": JOB, "name": "x", "state": "RUNNING", "start-time": 10**30}
    with FakeRest([Answer({"jobs": [row]})]) as server:
        assert client(server).jobs()[0].started.year == 1970


def test_a_cluster_that_is_gone_is_told() -> None:
    """With what the system said."""
    with FakeRest([Answer()]) as server:
        pass
    said = failure(client(server).jobs, UnreachableClusterError)
    assert "no connection (Connection refused)" in said
    assert "0x" not in said


@pytest.mark.parametrize("slow", [Answer({}, delay=2), Answer({"a" * 40: 1}, dripping=0.1)])
def test_a_slow_cluster_is_left(slow: Answer) -> None:
    """One that says nothing, and one that never comes to an end."""
    with FakeRest([slow]) as server:
        cluster = client(server, timeout=0.2)
        cluster.connection.retries = 0
        said = failure(cluster.jobs, UnreachableClusterError)
    assert "no answer within 0.2 s" in said


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded whatever comes."""
    monkeypatch.setattr("statelake.pipelines.live.connection.LARGEST_ANSWER", 1 << 16)
    assert LARGEST_ANSWER > 1 << 20
    with FakeRest([Answer(b"[" + b"1," * (1 << 20))]) as server:
        assert "a response of more than" in failure(client(server).jobs)


def test_reading_is_tried_again_and_a_change_is_not() -> None:
    """What may have happened must not happen twice."""
    busy, jobs = Answer({"errors": ["leader election"]}, 503), Answer({"jobs": []})
    with FakeRest([busy, busy, jobs]) as server:
        assert client(server).jobs() == []
    with FakeRest([busy]) as server:
        said = failure(lambda: client(server).upload_jar(__file__))
        assert "HTTP 503: leader election" in said
        assert len(server.asked) == 1
    with FakeRest([Answer({"errors": ["no"]}, 500)]) as server:
        assert "HTTP 500: no" in failure(client(server).jobs)
        assert len(server.asked) == 1


def test_a_savepoint_is_asked_for_again_by_the_same_id() -> None:
    """Flink knows it by that, so no second one is taken."""
    with FakeRest([Answer("", 502), Answer({"request-id": TRIGGER}), Answer(DONE)]) as server:
        location = client(server).take_savepoint(JOB, "file:/savepoints", trigger_id=TRIGGER)
    assert location == "file:/savepoints/sp"
    (first, second) = (body for method, _, _, body in server.asked if method == "POST")
    assert first == second
    assert TRIGGER.encode() in first


def test_a_submission_whose_answer_was_lost_is_looked_for() -> None:
    """It is not sent again: the job is asked for by the id that it was given."""

    def answer(_: str, path: str) -> Answer:
        return Answer({}, delay=1) if path.endswith("/run") else Answer(RUNNING)

    with FakeRest(answer) as server:
        assert client(server, timeout=0.2).run_jar("a.jar", job_id=JOB) == JOB
    assert [method for method, *_ in server.asked] == ["POST", "GET"]


def test_a_savepoint_of_a_suspending_coordinator_is_tried_again() -> None:
    """COMPLETED with a failure cause is no success; this one passes."""
    answers = [Answer({"request-id": TRIGGER}), Answer(SUSPENDED), Answer(RUNNING)]
    with FakeRest([*answers, *answers[:1], Answer(DONE)]) as server:
        assert client(server).take_savepoint(JOB) == "file:/savepoints/sp"
    bodies = [body for method, _, _, body in server.asked if method == "POST"]
    assert len(set(bodies)) == 2


@pytest.mark.parametrize("state", ["FINISHED", "FAILED"])
def test_a_job_that_ends_while_its_savepoint_is_taken(state: str) -> None:
    """Said with the cause, and with what became of the job."""
    gone = Answer({**RUNNING, "state": state})
    with FakeRest([Answer({"request-id": TRIGGER}), Answer(SUSPENDED), gone]) as server:
        said = failure(lambda: client(server).take_savepoint(JOB), FlinkJobError)
    assert "CheckpointException: Checkpoint Coordinator is suspending." in said
    assert said.endswith(f"the job is {state}")


def test_a_cluster_that_restarts_forgets_the_savepoint() -> None:
    """Which is said."""
    answers = [Answer({"request-id": TRIGGER}), Answer({"errors": ["x"]}, 404), Answer("", 404)]
    with FakeRest(answers) as server:
        said = failure(lambda: client(server).take_savepoint(JOB), FlinkJobError)
    assert "may have restarted" in said
    assert said.endswith("the cluster does not know the job any more")


def test_a_savepoint_that_takes_too_long_is_left() -> None:
    """With the word that it may still happen."""
    with FakeRest(
        [Answer({"request-id": TRIGGER}), Answer({"status": {"id": "IN_PROGRESS"}})]
    ) as s:
        said = failure(lambda: client(s).take_savepoint(JOB, timeout=0.05), UnreachableClusterError)
    assert "waited too long for a savepoint" in said
    assert "may still happen" in said


def test_ids_are_none_that_lead_elsewhere() -> None:
    """No path of the API is made of what is no id."""
    with FakeRest([Answer({})]) as server:
        assert "is not a Flink id" in failure(
            lambda: client(server).job("../config"), DeclarationError
        )
        assert server.asked == []


def test_jobs_of_one_name_are_told_apart() -> None:
    """By what runs, or else by their ids."""
    row = {"name": "orders", "start-time": 1, "duration": 1}
    ids = ["1" * 32, "2" * 32]
    jobs = [{**row, "jid": jid, "state": "RUNNING"} for jid in ids]
    with FakeRest([Answer({"jobs": jobs})]) as server:
        said = failure(lambda: client(server).find_job("orders"), NotFoundError)
        assert all(jid in said for jid in ids)
        assert client(server).find_job(ids[1]).id == ids[1]
    jobs[0]["state"] = "FINISHED"
    with FakeRest([Answer({"jobs": jobs})]) as server:
        assert client(server).find_job("orders").id == ids[1]
        assert "jobs that run: 'orders'" in failure(
            lambda: client(server).find_job("other"), NotFoundError
        )


# ---------------------------------------------------------------------------------- secrets

SECRETS = {
    "password": {"user": "ann", "password": "s3cret-word"},
    "token": {"token": "s3cret-word"},
    "header": {"headers": {"X-Api-Key": "s3cret-word"}},
    "url": {},
}


@pytest.mark.parametrize("kind", SECRETS)
@pytest.mark.parametrize(
    "answer",
    [
        Answer({"errors": ["what is s3cret-word?"]}, 500),
        Answer({"errors": ["s3cret-word"]}, 404),
        Answer("s3cret-word"),
        Answer("", 302, headers={"Location": "http://s3cret-word/"}),
        Answer("", 401),
    ],
    ids=["500", "404", "garbage", "redirect", "401"],
)
def test_secrets_are_sent_and_never_told(
    kind: str, answer: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    """Not in messages, traces, reprs or logs; not even where the server says them."""
    with FakeRest([answer]) as server, caplog.at_level(logging.DEBUG):
        url = server.url.replace("//", "//ann:s3cret-word@") if kind == "url" else server.url
        settings = ConnectionSettings(url, **SECRETS[kind])  # type: ignore[arg-type]
        cluster = FlinkCluster(settings)
        with pytest.raises(StateError) as raised:
            cluster.jobs()
    (_, _, headers, _) = server.asked[0]
    sent = {"token": "Bearer s3cret-word", "header": "s3cret-word"}
    name = "X-Api-Key" if kind == "header" else "Authorization"
    assert headers[name] == sent.get(kind, "Basic YW5uOnMzY3JldC13b3Jk")
    told = "".join(traceback.format_exception(raised.value))
    for text in (told, repr(settings), repr(cluster), repr(cluster.connection), caplog.text):
        assert "s3cret-word" not in text
        assert "YW5uOnMzY3JldC13b3Jk" not in text


def test_redirects_are_not_followed() -> None:
    """Credentials would go with them."""
    with FakeRest([Answer({"jobs": []})]) as other:
        moved = Answer("", 302, headers={"Location": f"{other.url}/jobs?x=1"})
        with FakeRest([moved]) as server:
            said = failure(client(server, token="token").jobs)  # noqa: S106
        assert f"it redirects to '{other.url}/jobs'" in said
        assert other.asked == []


def test_arguments_of_a_job_are_never_told() -> None:
    """Flink says them again where a program refuses them."""
    with FakeRest([Answer({"errors": ["No such option: --password=hunter2"]}, 400)]) as server:
        said = failure(lambda: client(server).run_jar("a.jar", arguments=["--password=hunter2"]))
    assert "hunter2" not in said
    assert "No such option: ***" in said


def test_no_netrc_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would answer for who asks."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password s3cret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with FakeRest([Answer({"jobs": []})]) as server:
        client(server).jobs()
    assert "Authorization" not in server.asked[0][2]


# ---------------------------------------------------------------------------------- settings


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    """All of them, and a URL that is given goes before that of the environment."""
    (tmp_path / "ca.pem").touch()
    environment = {
        "STATELAKE_FLINK": "https://flink.example/api/",
        "STATELAKE_FLINK_TOKEN": "token",
        "STATELAKE_FLINK_HEADERS": "X-Tenant: blue\nX-Other: a:b",
        "STATELAKE_FLINK_CA": str(tmp_path / "ca.pem"),
        "STATELAKE_FLINK_TIMEOUT": "7",
    }
    settings = ConnectionSettings.from_environment("", environment)
    assert settings.url == "https://flink.example/api"
    assert settings.token == "token"  # noqa: S105 - the test's
    assert settings.headers == {"X-Tenant": "blue", "X-Other": "a:b"}
    assert settings.timeout == 7
    assert settings.ca_file == str(tmp_path / "ca.pem")
    assert ConnectionSettings.from_environment("http://other", environment).url == "http://other"
    assert ConnectionSettings.has_credentials(environment)
    assert not ConnectionSettings.has_credentials({"STATELAKE_FLINK": "x"})


@pytest.mark.parametrize(
    ("environment", "problem"),
    [
        ({}, "no Flink cluster is given"),
        ({"": "ftp://host"}, "not the URL of a REST API"),
        ({"": "http://[::1"}, "that is not a URL"),
        ({"": "http://host:port"}, "that is not a URL"),
        ({"": "http://host?token=secret"}, "a URL with a query"),
        ({"_USER": "ann", "_TOKEN": "secret"}, "a user and a bearer token"),
        ({"_TIMEOUT": "long"}, "is not a number of seconds"),
        ({"_TIMEOUT": "0"}, "a timeout of zero"),
        ({"_TIMEOUT": "nan"}, "a timeout of zero"),
        ({"_HEADERS": '{"a": ["secret"]}'}, "not valid headers"),
        ({"_HEADERS": '{"a": "secret"'}, "not valid headers"),
        ({"_HEADERS": "secret"}, "not valid headers"),
        ({"_HEADERS": ": secret"}, "a header without a name"),
        ({"_CA": "/nowhere.pem"}, "there is no file"),
    ],
)
def test_settings_that_can_not_be(environment: dict[str, str], problem: str) -> None:
    """Are refused in a sentence without secrets."""
    url = {"": "http://host"} if any(environment) else {}
    given = {f"STATELAKE_FLINK{name}": value for name, value in {**url, **environment}.items()}
    said = failure(lambda: ConnectionSettings.from_environment("", given), DeclarationError)
    assert problem in said
    assert "secret" not in said


def test_a_header_that_http_has_no_place_for() -> None:
    """Is said without what it holds."""
    with FakeRest([Answer({})]) as server:
        said = failure(client(server, headers={"X": "s3cret\nword"}).jobs)
    assert "not a valid HTTP request" in said
    assert "s3cret" not in said


# ---------------------------------------------------------------------------------- TLS


@pytest.fixture
def authority() -> trustme.CA:
    """Who vouches for the server and its clients."""
    return trustme.CA()


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    """Its certificate."""
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    return str(tmp_path / "authority.pem")


def secured(authority: trustme.CA, *, clients: bool) -> ssl.SSLContext:
    """A server's side, which may ask for a client's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        authority.configure_trust(context)
    return context


def test_a_server_is_judged_by_its_authority(
    authority: trustme.CA, ca_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is named; a server that is not known is refused before anything is sent."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", certifi.where())
    with FakeRest([Answer({"jobs": []})], secured(authority, clients=False)) as server:
        assert client(server, ca_file=ca_file).jobs() == []
        said = failure(client(server, token="s3cret-word").jobs)  # noqa: S106
        assert "no secure connection" in said
        assert "STATELAKE_FLINK_CA" in said
        assert len(server.asked) == 1


def test_a_client_shows_its_certificate(
    authority: trustme.CA, ca_file: str, tmp_path: Path
) -> None:
    """With its key in a file of its own; without one it is refused."""
    issued = authority.issue_cert("a-client")
    issued.private_key_pem.write_to_path(tmp_path / "client.key")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "client.pem")
    known = {"ca_file": ca_file}
    own = {"certificate": str(tmp_path / "client.pem"), "key": str(tmp_path / "client.key")}
    with FakeRest([Answer({"jobs": []})], secured(authority, clients=True)) as server:
        assert client(server, **known, **own).jobs() == []
        failure(client(server, **known).jobs)
        assert len(server.asked) == 1
