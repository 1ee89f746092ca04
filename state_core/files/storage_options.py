"""Options of a remote file system: in a URI as Arrow expects them, and by name as delta-rs does.

This is the one place from which every client of a store (Arrow, delta-rs, obstore, Hadoop's S3A)
gets its address, region and keys: a client that looked for them itself would know other variables
than the others, and take its part of the state elsewhere.

`storage_options=` of users (the names that deltalake, pyiceberg and Polars share) becomes a part of
the location, so that one text is all that another process needs to open the same directory. So do
the address and region that the environment and AWS's files say.

So do the options of a place: if savepoints and lake are in stores with different keys, the file
that `STATELAKE_STORES` names has the options of each::

    ["s3://flink-savepoints"]
    AWS_PROFILE = "flink"

    ["s3://lakes/orders"]
    AWS_ENDPOINT_URL = "https://minio.internal:9000"
    AWS_PROFILE = "minio"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from configparser import ConfigParser
from configparser import Error as ConfigError
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from statelake.state_core.errors import SnapshotError
from statelake.state_core.files.object_stores import AZURE_SCHEMES, S3_SCHEMES
from statelake.state_core.files.toml import parse_toml

if TYPE_CHECKING:
    from statelake.state_core.files.filesystem import Directory

STORES = "STATELAKE_STORES"  # the file of options by place

_ENDPOINT, _ALLOW_HTTP = "AWS_ENDPOINT_URL", "AWS_ALLOW_HTTP"
_KEY, _SECRET, _TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
_PROFILE = "AWS_PROFILE"
_S3_OPTIONS = {"endpoint_override": _ENDPOINT, "region": "AWS_REGION"}
_ARROW_ALONE = ("role_arn", "tls_ca_file_path")
# the names of one option, the first that is set counts: delta-rs and obstore know the last, too
_VARIABLES = {
    _ENDPOINT: (f"{_ENDPOINT}_S3", _ENDPOINT, "AWS_ENDPOINT"),
    "AWS_REGION": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    _ALLOW_HTTP: (_ALLOW_HTTP,),
}
_IGNORED = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
# addresses that only some of a store's clients know, by its schemes
_ADDRESSES_OF_SOME = {
    ("gs", "gcs"): ("GOOGLE_BASE_URL", "CLOUD_STORAGE_EMULATOR_ENDPOINT", "STORAGE_EMULATOR_HOST"),
    AZURE_SCHEMES: (
        "AZURE_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_STORAGE_USE_EMULATOR",
        "AZURE_USE_EMULATOR", "AZURE_USE_FABRIC_ENDPOINT",
    ),
}  # fmt: skip
_NAMES = (_KEY, _SECRET, _TOKEN, *_S3_OPTIONS.values(), _ALLOW_HTTP)


def with_storage_options(
    location: str | os.PathLike[str], options: Mapping[str, str] | None
) -> str:
    """Return a location with options added to it.

    Args:
        location: A path or URI.
        options: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
            `AWS_ENDPOINT_URL` and `AWS_ALLOW_HTTP`, in any case, for `s3://`.

    Raises:
        SnapshotError: The file system takes no options, or the option is unknown.
    """
    text = os.fspath(location)
    if not options:
        return text
    given = {name.upper(): str(value) for name, value in options.items()}
    unknown = sorted(set(given) - set(_NAMES))
    parts = urlsplit(text)
    are_given = [name in given for name in (_KEY, _SECRET)]
    is_incomplete = any(are_given) != all(are_given) or (_TOKEN in given and not all(are_given))
    if parts.scheme not in S3_SCHEMES or unknown or is_incomplete:
        raise SnapshotError(
            f"storage option {unknown[0]!r} is not known" if unknown
            else "storage options are for s3:// locations, access key and secret together",
            remedy=f"known are {', '.join(_NAMES)}; set others in the environment",
        )  # fmt: skip
    authority = parts.netloc.rpartition("@")[2]
    if _KEY in given:
        keys = [given[name] for name in (_KEY, _SECRET, _TOKEN) if given.get(name)]
        authority = f"{':'.join(quote(key, safe='') for key in keys)}@{authority}"
    else:
        authority = parts.netloc
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    query |= {key: given[name] for key, name in _S3_OPTIONS.items() if name in given}
    scheme, separator, host = query.get("endpoint_override", "").partition("://")
    if separator:
        query |= {"endpoint_override": host.rstrip("/"), "scheme": scheme}
    if _is_on(given.get(_ALLOW_HTTP)) and "endpoint_override" in query:  # Amazon's has TLS
        query.setdefault("scheme", "http")
    return urlunsplit((parts.scheme, authority, parts.path, urlencode(query, safe=":"), ""))


def storage_options(directory: Directory) -> dict[str, str] | None:
    """Return the options and keys of an S3 directory, in delta-rs's spelling.

    Keys in variables are not returned, as every client finds them there; nor are those of other
    stores.

    Raises:
        SnapshotError: delta-rs lacks an option, and would use another address or other credentials.
    """
    given = {key: values[-1] for key, values in parse_qs(directory.query).items()}
    is_s3 = directory.scheme in S3_SCHEMES
    for name in given if not is_s3 and directory.is_object_store else _ARROW_ALONE:
        if name in given:
            raise SnapshotError(
                f"a table's log can't be opened with the option {name!r}",
                place=directory.uri,
                remedy="set it in the environment, for all places at once" if is_s3
                else "keep the lake where no option is needed",
            )  # fmt: skip
    if not is_s3:
        return None
    options = {name: given[key] for key, name in _S3_OPTIONS.items() if key in given}
    if _is_on(given.get("anonymous")):
        options["AWS_SKIP_SIGNATURE"] = "true"
    options |= keys_of(directory.credentials, directory.query)
    scheme = given.get("scheme", "https")
    if _ENDPOINT in options and "://" not in options[_ENDPOINT]:
        options[_ENDPOINT] = f"{scheme}://{options[_ENDPOINT]}"
    if scheme == "http":
        options[_ALLOW_HTTP] = "true"
    return options or None


def keys_of(credentials: str, query: str) -> dict[str, str]:
    """Return the keys for S3 that a URI has; otherwise, if no variable has one, a profile's.

    Args:
        credentials: The URI's, as they are before `@`.
        query: The URI's options.

    Raises:
        SnapshotError: AWS's files can't be read.
    """
    names = (_KEY, _SECRET, _TOKEN)
    if credentials:
        return dict(zip(names, map(unquote, credentials.split(":")), strict=False))
    given = dict(parse_qsl(query))
    if os.environ.get(_KEY) or _is_on(given.get("anonymous")) or "role_arn" in given:
        return {}
    profile = _profile(os.environ.get(_PROFILE) or "default")
    are_complete = {_KEY, _SECRET} <= profile.keys()
    return {name: profile[name] for name in names if are_complete and name in profile}


def _address() -> dict[str, str]:
    """Return S3's address and region, from variables and then AWS's files.

    Raises:
        SnapshotError: AWS's files can't be read, or the addresses are to be ignored.
    """
    options = _profile(os.environ.get(_PROFILE) or "default")
    for name, variables in _VARIABLES.items():
        if values := list(filter(None, map(os.environ.get, variables))):
            options[name] = values[0]
    if _ENDPOINT in options and _is_on(os.environ.get(_IGNORED)):
        raise SnapshotError(
            "an address of S3 is set, and is to be ignored; not every client ignores it",
            place=_IGNORED,
            remedy=f"unset it, or the address ({', '.join(_VARIABLES[_ENDPOINT])}, or the profile's"
            " endpoint_url)",
        )
    return {name: options[name] for name in _VARIABLES if name in options}


def location_below(location: str, *names: str) -> str:
    """Return a path or URI that leads further down; a URI's options stay behind its path."""
    parts = urlsplit(location)
    if not parts.netloc:
        return "/".join([location.rstrip("/"), *names])
    below = "/".join([parts.path.rstrip("/"), *(quote(name, safe="/=") for name in names)])
    return urlunsplit(parts._replace(path=below))


def completed(location: str) -> str:
    """Return a location of S3 with the options that the user's settings have for it.

    These are, in this order, the location's own, those of the file of `STATELAKE_STORES`, and the
    address and region in variables and AWS's files. If it has keys, the file's are not used.

    Raises:
        SnapshotError: A file can't be read, or has an entry that is not allowed; or a variable has
            an address that not all clients of the store know.
    """
    try:
        parts = urlsplit(location)
    except ValueError as error:
        place = location.rpartition("@")[2]
        raise SnapshotError(f"this is no URI ({error})", place=place) from error
    if parts.scheme not in S3_SCHEMES:
        _refuse_addresses_of_some(parts.scheme)
        return location
    if ":" in parts.netloc.rpartition("@")[2]:  # it would be asked for by that name
        raise SnapshotError(
            "a secret key with a slash ends there", place=f"{parts.scheme}://",
            remedy="write the slash as %2F; a bucket's name has no colon",
        )  # fmt: skip
    given = dict(parse_qsl(parts.query))
    own = {name for key, name in _S3_OPTIONS.items() if key in given}
    if "@" in parts.netloc or _is_on(given.get("anonymous")):
        own |= {_KEY, _SECRET, _TOKEN}
    if own >= {_KEY, *_S3_OPTIONS.values()}:
        return location  # there is nothing to add
    file = os.environ.get(STORES) or ""
    place = f"s3://{parts.netloc.rpartition('@')[2]}{unquote(parts.path)}".rstrip("/") + "/"
    prefix, of_place = _options_of_place(file, place) if file else ("", {})
    options = _address() | of_place
    if "scheme" in given and _ENDPOINT in options:
        options[_ENDPOINT] = options[_ENDPOINT].rpartition("://")[2]
    if "scheme" in given or _ENDPOINT in own:
        own.add(_ALLOW_HTTP)
    kept = {name: value for name, value in options.items() if name not in own}
    try:
        return with_storage_options(location, kept)
    except SnapshotError as error:
        raise _wrong_file(file, f"{prefix}: {error.problem}") from error


def _refuse_addresses_of_some(scheme: str) -> None:
    """Refuse a store whose tables' logs would go to another address than their rows."""
    for schemes, names in _ADDRESSES_OF_SOME.items():
        for name in names if scheme in schemes else ():
            if not os.environ.get(name):
                continue
            raise SnapshotError(
                "it has an address that not every client of the store takes from there",
                place=name,
                remedy="unset it: files would go to one address, and tables' logs to another",
            )


def _options_of_place(file: str, place: str) -> tuple[str, dict[str, str]]:
    """Return the longest place in the file that a location lies in, and the options there."""
    stores = _stores(file)
    prefixes = [prefix for prefix in stores if place.startswith(prefix.rstrip("/") + "/")]
    prefix = max(prefixes, key=len, default="")
    return prefix, _with_profile(dict(stores[prefix]), file, prefix) if prefix else {}


def _is_on(value: str | None) -> bool:
    return (value or "").lower() in {"true", "1"}


def _stores(file: str) -> dict[str, dict[str, str]]:
    """Return the options in the file, by place."""
    try:
        content = parse_toml(Path(file).expanduser().read_text("utf-8"))
    except OSError as error:
        raise _wrong_file(file, f"it can't be read ({error.strerror})") from error
    except RuntimeError as error:  # `~` of an unknown user
        raise _wrong_file(file, f"it can't be read ({error})") from error
    except ValueError as error:
        raise _wrong_file(file, f"it is no TOML ({error})") from error
    stores = {}
    for prefix, options in content.items():
        scheme, _, place = prefix.partition("://")
        if scheme not in S3_SCHEMES or not place:
            raise _wrong_file(file, f"{prefix!r} must begin with s3://")
        if not isinstance(options, dict) or not all(
            isinstance(value, str) for value in options.values()
        ):
            raise _wrong_file(file, f"{prefix}: each option must be a quoted string")
        stores[f"s3://{place}"] = {name.upper(): value for name, value in options.items()}
    return stores


def _with_profile(options: dict[str, str], file: str, prefix: str) -> dict[str, str]:
    """Return options with the keys of the profile in AWS's own files that they name."""
    profile = options.pop(_PROFILE, None)
    if profile is None:
        return options
    keys = _profile(profile)
    if _KEY not in keys or _SECRET not in keys:
        raise _wrong_file(
            file,
            f"{prefix}: the profile {profile!r} has no keys in AWS's files",
            remedy="name one with an access key and a secret; a role or a single sign-on works as"
            " AWS_PROFILE in the environment, for all places at once",
        )
    return keys | options


def _profile(profile: str) -> dict[str, str]:
    """Return the keys, region and endpoint of a profile in AWS's files."""
    places = (
        ("AWS_CONFIG_FILE", "~/.aws/config", ("default" if profile == "default" else
         f"profile {profile}")),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
    )  # fmt: skip
    names = {
        "aws_access_key_id": _KEY, "aws_secret_access_key": _SECRET, "aws_session_token": _TOKEN,
        "region": "AWS_REGION", "endpoint_url": _ENDPOINT,
    }  # fmt: skip
    options: dict[str, str] = {}
    for variable, usual, section in places:
        path = Path(os.environ.get(variable) or usual)
        parser = ConfigParser(interpolation=None, strict=False)
        try:
            with suppress(RuntimeError):  # `~` without a home directory
                parser.read(path.expanduser(), "utf-8")
        except (ConfigError, OSError, ValueError) as error:
            raise _wrong_file(str(path), f"it can't be read ({type(error).__name__})") from error
        if parser.has_section(section):
            values = dict(parser.items(section))
            services = f"services {values.get('services')}"
            of_s3 = parser.get(services, "s3", fallback="").partition("endpoint_url")[2]
            if url := of_s3.partition("=")[2].split():
                values["endpoint_url"] = url[0]
            options |= {name: values[key] for key, name in names.items() if values.get(key)}
    return options


def _wrong_file(file: str, problem: str, remedy: str = "") -> SnapshotError:
    allowed = f"it may have, by place, {_PROFILE}, {', '.join(_NAMES)}"
    return SnapshotError(problem, place=file, remedy=remedy or allowed)
