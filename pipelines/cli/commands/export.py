"""`statelake export`: write a snapshot as a savepoint that Flink restores."""

from __future__ import annotations

import click

from statelake.pipelines.cli.commands.plugins import plugins_option
from statelake.pipelines.cli.commands.terminal import (
    as_json,
    bytes_text,
    json_option,
    progress_bar,
    tell,
    tell_times,
)
from statelake.pipelines.cli.engine_options import engine_option
from statelake.pipelines.cli.options import (
    NamedSnapshot,
    request_options,
    typed_source_options,
)
from statelake.pipelines.requests.savepoints import Export


@click.command()
@typed_source_options
@request_options(Export)
@engine_option
@plugins_option
@json_option
def export(
    source: NamedSnapshot,
    request: Export,
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
    with progress_bar("exporting", quiet=as_json_, of_bytes=True) as progress:
        snapshot = source.placed(engine, progress)
        done = snapshot.export(**vars(request))
    if as_json_:
        as_json(done)
        return
    tell(
        f"exported {snapshot.name} to {done.path}: {done.files} files,"
        f" {bytes_text(done.size)}, _metadata version {done.metadata_version}",
        marked=done.path,
    )
    for what in done.left_out:
        tell(f"left out: {what}")
    tell(f"restore it with: flink run -s {done.path} ...")
    tell_times(done.times)
