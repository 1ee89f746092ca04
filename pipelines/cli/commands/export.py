"""`statelake export`: write a snapshot as a savepoint that Flink restores."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace

import click

from statelake.pipelines.api import LakeSnapshot, in_temporary_lake
from statelake.pipelines.cli.commands.compress import conf_option, parse_conf
from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    progress_bar,
    tell,
    tell_times,
)
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    ShareOptions,
    engine_option,
    max_parallelism_option,
    metadata_version_option,
    operator_state_version_option,
    share_options,
    typed_source_options,
)


@click.command()
@typed_source_options
@click.option("--to", required=True, help="The savepoint's directory, which must not exist.")
@click.option("--parallelism", type=click.IntRange(min=1), help="By default as it was.")
@max_parallelism_option(help="By default as it was; another one gives every key a new group.")
@click.option("--compression", type=click.Choice(["snappy", "none"]), help="By default as it was.")
@metadata_version_option(
    help="3 restores in any Flink since 1.11, 4 in 1.16+, 5 in 2.0+, 6 in 2.1+."
    " By default the source's.",
)
@operator_state_version_option(
    help="5 for Flink before 1.18, which is never compressed. By default the source's."
)
@click.option(
    "--drop-channel-state",
    is_flag=True,
    help="Leave out the records in flight of an unaligned checkpoint: the job never sees them.",
)
@share_options
@conf_option
@engine_option
@plugins_option
@json_option
def export(
    source: NamedSnapshot,
    to: str,
    parallelism: int | None,
    max_parallelism: int | None,
    compression: str | None,
    metadata_version: int | None,
    operator_state_version: int | None,
    drop_channel_state: bool,
    sharing: ShareOptions,
    conf: tuple[str, ...],
    engine: str,
    as_json_: bool,
) -> None:
    """Write a snapshot as a canonical savepoint, at any parallelism and max parallelism.

    The snapshot is in a lake, or it is a SAVEPOINT or checkpoint of Flink, which is first read into
    a temporary directory of this machine.

    --sample exports a share of the keys, each with all its states and timers; operators with keys
    of one type sample the same keys. --mask FILE is a YAML file that masks keys and values (see
    docs/share.md); a column without a rule is an error. State that can be neither sampled nor
    masked (raw and channel state; values of Kryo and of unknown classes) is an error, too, unless
    --leave-out-opaque leaves it out.

    The records in flight of an unaligned checkpoint are exported only at its own parallelism: Flink
    then restores the savepoint at any. --drop-channel-state leaves them out, and lists what is
    lost.

    \b
    Examples:
      statelake export --lake lake --job orders --snapshot sp-1 --to /savepoints/sp-1-at-12 \\
          --parallelism 12
      statelake export --lake lake --job orders --snapshot sp-1 --to /savepoints/wide \\
          --max-parallelism 1000 --compression snappy
      statelake export --lake lake --job orders --snapshot sp-1 --to /savepoints/for-1.20 \\
          --metadata-version 4
      statelake export --lake lake --job orders --snapshot latest --to /tmp/small --sample 1%
      statelake export --lake lake --job orders --snapshot latest --to /tmp/for-a-laptop \\
          --sample 1% --seed 7 --mask mask.yaml
      statelake export /savepoints/sp-1 --to /tmp/for-a-laptop --sample 1% --mask mask.yaml
      statelake export /checkpoints/chk-21 --to /savepoints/aligned --parallelism 6 \\
          --drop-channel-state
    """
    with (
        nullcontext(source.stored(engine))
        if source.in_lake
        else in_temporary_lake(source.savepoint, to, **vars(source.reading)) as opened,
        progress_bar("exporting", quiet=as_json_, of_bytes=True) as progress,
    ):
        snapshot = LakeSnapshot(replace(opened.job, progress=progress), opened.record)
        done = snapshot.export(
            to,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            compression=compression,
            conf=parse_conf(conf),
            metadata_version=metadata_version,
            operator_state_version=operator_state_version,
            drop_channel_state=drop_channel_state,
            **sharing,
        )
    if as_json_:
        as_json(asdict(done))
        return
    name = opened.name if source.in_lake else source.savepoint
    tell(
        f"exported {name} to {done.path}: {done.files} files,"
        f" {bytes_text(done.size)}, _metadata version {done.metadata_version}",
        marked=done.path,
    )
    for what in done.left_out:
        tell(f"left out: {what}")
    tell(f"restore it with: flink run -s {done.path} ...")
    tell_times(done.times)
