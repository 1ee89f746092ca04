"""Set up Spark's own readers for object stores: S3 by Hadoop's S3A.

PySpark comes without S3A. If it is not installed, the session gets it, with the small part of
Amazon's SDK that it needs, when the first location in S3 is opened.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from pyspark.sql import SparkSession

from statelake.pipelines.spark.jars import resolve_jars
from statelake.state_core.errors import StateError
from statelake.state_core.files.filesystem import Directory
from statelake.state_core.files.object_stores import S3_SCHEMES
from statelake.state_core.files.storage_options import storage_options

HADOOP_VERSION = "3.5.0"  # the version of PySpark's own Hadoop
SDK_VERSION = "2.35.4"  # Hadoop's; its bundle has 600 MB of other services
SDK_MODULES = (
    "annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol",
    "aws-xml-protocol", "checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth",
    "http-auth-aws", "http-auth-aws-eventstream", "http-auth-spi", "http-client-spi",
    "identity-spi", "json-utils", "metrics-spi", "netty-nio-client", "profiles", "protocol-core",
    "regions", "retries", "retries-spi", "s3", "s3-transfer-manager", "sdk-core", "sts",
    "third-party-jackson-core", "utils", "utils-lite",
)  # fmt: skip
S3_JARS = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    "software.amazon.eventstream:eventstream:1.0.1",
    "org.reactivestreams:reactive-streams:1.0.4",
    *(f"software.amazon.awssdk:{module}:{SDK_VERSION}" for module in SDK_MODULES),
)
S3_DIGEST = "7429747d8e1e2c77dfdf3e1b3385d471dcfe2e46606cd1075f9db2e377f2558c"
S3A_CLASS = "org.apache.hadoop.fs.s3a.S3AFileSystem"
PROVIDER = "aws.credentials.provider"
PROVIDERS = "org.apache.hadoop.fs.s3a.{}AWSCredentialsProvider"
# by the names of delta-rs and AWS's tools, the names of S3A
S3A_OPTIONS = {
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_REGION": "endpoint.region",
    "AWS_ACCESS_KEY_ID": "access.key",
    "AWS_SECRET_ACCESS_KEY": "secret.key",
    "AWS_SESSION_TOKEN": "session.token",
}
# the parts of one credential: two sources of settings are never mixed
KEYS = {"access.key", "secret.key", "session.token", PROVIDER}
_OPENED: dict[str, dict[str, str]] = {}  # S3A's settings of a bucket, which last as long as the JVM


def spark_path(session: SparkSession, directory: Directory) -> str:
    """Return a directory's location for Spark, and set up the session for it.

    The location's options, and the environment's address of the store, apply to its bucket in this
    session; the session's own settings (`spark.hadoop.fs.s3a...`) win. On Spark Connect the server
    must have S3A.

    Raises:
        StateError: The JARs can't be downloaded, or Spark has opened the bucket otherwise.
    """
    if directory.scheme not in S3_SCHEMES:
        return directory.uri
    _bring_s3a(session)
    bucket, _, path = directory.root.partition("/")
    settings = s3a_settings(directory)
    if _OPENED.setdefault(bucket, settings) != settings:
        raise StateError(
            "Spark has opened this bucket with other keys, or at another address, and keeps them",
            place=f"s3://{bucket}",
            remedy="open each in a process of its own",
        )
    given = session.conf.getAll
    configured = {
        name
        for name in {*S3A_OPTIONS.values(), *settings, *KEYS}
        for names in (f"fs.s3a.{name}", f"fs.s3a.bucket.{bucket}.{name}")
        if f"spark.hadoop.{names}" in given
    }
    if configured & KEYS:
        configured |= KEYS
    for name in settings.keys() - configured:
        session.conf.set(f"fs.s3a.bucket.{bucket}.{name}", settings[name])
    return f"s3a://{bucket}/{path}"


def s3a_settings(directory: Directory) -> dict[str, str]:
    """Return S3A's settings of a directory's bucket; it finds keys in variables itself."""
    options = storage_options(directory) or {}
    settings = {name: options[key] for key, name in S3A_OPTIONS.items() if options.get(key)}
    virtual = parse_qs(directory.query).get("force_virtual_addressing", ["false"])[-1]
    if "endpoint" in settings and virtual.lower() not in {"true", "1"}:
        settings["path.style.access"] = "true"  # as in Arrow and delta-rs
    if "AWS_SKIP_SIGNATURE" in options:
        settings = {name: value for name, value in settings.items() if name not in KEYS}
        settings[PROVIDER] = PROVIDERS.format("Anonymous")
    elif "access.key" in settings:  # the environment's token belongs to other keys
        kind = "Temporary" if "session.token" in settings else "Simple"
        settings[PROVIDER] = PROVIDERS.format(kind)
    return settings


def s3_jars() -> list[str]:
    """Return the URIs of S3A's JARs, downloaded at the first call."""
    jars = resolve_jars(f"jars/s3a-{HADOOP_VERSION}", alone=S3_JARS, digest=S3_DIGEST)
    return [jar.resolve().as_uri() for jar in sorted(jars.glob("*.jar"))]


def _bring_s3a(session: SparkSession) -> None:
    """Add S3A to Hadoop's class path, on executors too; impossible with Spark Connect."""
    context: Any = getattr(session, "_sc", None)
    if context is None:
        return
    configuration = context._jsc.hadoopConfiguration()  # noqa: SLF001 - Python has no other way
    if configuration.getClassByNameOrNull(S3A_CLASS) is not None:
        return
    loader = session._jsparkSession.sharedState().jarClassLoader()  # noqa: SLF001 - the same
    for uri in s3_jars():  # SQL's ADD JAR refuses paths with a quote or a space
        context._jsc.addJar(uri)  # noqa: SLF001 - for executors, also for those that come later
        loader.addURL(context._jvm.java.net.URI(uri).toURL())  # noqa: SLF001 - for the driver
    configuration.setClassLoader(loader)
