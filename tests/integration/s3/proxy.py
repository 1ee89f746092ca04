"""A real S3 API: S3Proxy over its memory, on loopback, in a JVM that the tests start and stop.

It looks whether there is an object before it puts one, not at once: so it can't judge commits to
one Delta table by several writers at the same moment, which S3 itself decides. Its other storages
keep prefixes as directories, and refuse to delete one together with what is in it.
"""

from __future__ import annotations

import socket
import time
from pathlib import Path
from urllib.parse import urlencode

from typing_extensions import Self

from statelake.pipelines.spark.jars import require_java, resolve_jars
from statelake.state_core.files.filesystem import Directory
from tests.integration.jvm_server import JvmServer, free_ports
from tests.support.java import java

VERSION = "2.9.0"
SECONDS = 60
BUCKET = "lake"
KEY, SECRET = "statelake", "not-a-secret"
# what AWS's SDKs ask for elsewhere; checksums behind a stream's end are too new for many an S3
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
    "AWS_RESPONSE_CHECKSUM_VALIDATION": "when_required",
}
PROPERTIES = """s3proxy.endpoint=http://127.0.0.1:{port}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={key}
s3proxy.credential={secret}
s3proxy.ignore-unknown-headers=true
jclouds.provider=transient
"""


def s3proxy_jars() -> Path:
    """The directory with S3Proxy's JARs, downloaded at the first call."""
    require_java()
    return resolve_jars(f"s3proxy-{VERSION}", [f"org.gaul:s3proxy:{VERSION}"])


class S3Proxy(JvmServer):
    """An S3 with one bucket.

    Args:
        heap: Of its JVM, which holds all objects.

    Attributes:
        port: Of loopback.
        query: What a URI says of it, as Arrow spells it.
    """

    def __init__(self, heap: str = "384m") -> None:
        super().__init__("s3-")
        (self.port,) = free_ports(1)
        options = {
            "endpoint_override": f"127.0.0.1:{self.port}", "scheme": "http",
            "region": "us-east-1", "allow_bucket_creation": "true",
        }  # fmt: skip
        self.query = urlencode(options)
        properties = self._root / "s3proxy.conf"
        properties.write_text(PROPERTIES.format(port=self.port, key=KEY, secret=SECRET), "utf-8")
        self._start(
            java(
                heap, [f"{s3proxy_jars()}/*"],
                "org.gaul.s3proxy.Main", "--properties", str(properties),
            )
        )  # fmt: skip

    def location(self, path: str, credentials: str = "") -> str:
        """The URI of something in the bucket."""
        return f"s3://{credentials}{BUCKET}/{path}?{self.query}"

    def __enter__(self) -> Self:
        until = time.monotonic() + SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            if self._answers():
                try:
                    Directory(self.location("", f"{KEY}:{SECRET}@")).create()
                except BaseException:
                    self.__exit__(None, None, None)
                    raise
                return self
            time.sleep(0.1)
        told = (self._root / "told").read_text("utf-8", "replace")[-2000:]
        self.__exit__(None, None, None)
        raise RuntimeError(f"S3Proxy does not come up: {told}")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
