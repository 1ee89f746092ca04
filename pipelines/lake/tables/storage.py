"""What delta-rs needs to know of a remote file system beyond its URI."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote

from state_core.files.filesystem import Directory

__all__ = ["storage_options"]

_S3_OPTIONS = {
    "endpoint_override": "AWS_ENDPOINT_URL",
    "region": "AWS_REGION",
}


def storage_options(directory: Directory) -> dict[str, str] | None:
    """The options and credentials in a URI, as Arrow spells them, in delta-rs's spelling.

    Credentials come from the environment where the URI has none.
    """
    if directory.local or not (directory.query or directory.credentials):
        return None
    given = {key: values[-1] for key, values in parse_qs(directory.query).items()}
    options = {name: given[key] for key, name in _S3_OPTIONS.items() if key in given}
    if directory.credentials:
        key, _, secret = directory.credentials.partition(":")
        options["AWS_ACCESS_KEY_ID"], options["AWS_SECRET_ACCESS_KEY"] = (
            unquote(key),
            unquote(secret),
        )
    scheme = given.get("scheme")
    if scheme and "AWS_ENDPOINT_URL" in options and "://" not in options["AWS_ENDPOINT_URL"]:
        options["AWS_ENDPOINT_URL"] = f"{scheme}://{options['AWS_ENDPOINT_URL']}"
    if scheme == "http":
        options["AWS_ALLOW_HTTP"] = "true"
    return options
