import io.debezium.relational.Column;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.history.TableChanges;
import io.debezium.relational.history.TableChanges.TableChange;
import java.sql.Types;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.cdc.connectors.base.source.assigner.AssignerStatus;
import org.apache.flink.cdc.connectors.base.source.assigner.state.ChunkSplitterState;
import org.apache.flink.cdc.connectors.base.source.assigner.state.HybridPendingSplitsState;
import org.apache.flink.cdc.connectors.base.source.assigner.state.PendingSplitsState;
import org.apache.flink.cdc.connectors.base.source.assigner.state.PendingSplitsStateSerializer;
import org.apache.flink.cdc.connectors.base.source.assigner.state.SnapshotPendingSplitsState;
import org.apache.flink.cdc.connectors.base.source.assigner.state.StreamPendingSplitsState;
import org.apache.flink.cdc.connectors.base.source.meta.offset.Offset;
import org.apache.flink.cdc.connectors.base.source.meta.offset.OffsetFactory;
import org.apache.flink.cdc.connectors.base.source.meta.split.FinishedSnapshotSplitInfo;
import org.apache.flink.cdc.connectors.base.source.meta.split.SchemalessSnapshotSplit;
import org.apache.flink.cdc.connectors.base.source.meta.split.SourceSplitBase;
import org.apache.flink.cdc.connectors.base.source.meta.split.SourceSplitSerializer;
import org.apache.flink.cdc.connectors.base.source.meta.split.StreamSplit;
import org.apache.flink.cdc.connectors.postgres.source.offset.PostgresOffset;
import org.apache.flink.cdc.connectors.postgres.source.offset.PostgresOffsetFactory;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Savepoints with the state of Flink CDC's Postgres source, by its serializers:
 *
 * <pre>
 * stream    DIRECTORY   the snapshot is read, and the log is being read
 * initial   DIRECTORY   the log is read, without a snapshot
 * snapshot  DIRECTORY   a chunk is read, one is being read, a table is split, another one waits
 * starts    SPLIT       no savepoint: the offset from which a split in hexadecimal digits is read
 * </pre>
 */
public class PostgresStates {
    private static final TableId ORDERS = new TableId(null, "shop", "orders");
    private static final TableId LINES = new TableId(null, "shop", "lines");
    private static final TableId RETURNS = new TableId(null, "shop", "returns");
    private static final RowType KEY =
            RowType.of(new LogicalType[] {new BigIntType(false)}, new String[] {"id"});
    private static final OffsetFactory OFFSETS = new PostgresOffsetFactory();
    private static final SourceSplitSerializer SERIALIZER = new SourceSplitSerializer() {
        @Override
        public OffsetFactory getOffsetFactory() {
            return OFFSETS;
        }
    };

    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> run(words[0], words[1]));
    }

    private static String run(String what, String given) throws Exception {
        if (what.equals("starts")) {
            byte[] split = new java.math.BigInteger("01" + given, 16).toByteArray();
            return SERIALIZER.deserialize(SERIALIZER.getVersion(),
                            Arrays.copyOfRange(split, 1, split.length))
                    .asStreamSplit().getStartingOffset().toString();
        }
        Offset high = offset(23876424L, 731L);
        SchemalessSnapshotSplit first = chunk(ORDERS, 0, null, 100L, high);
        SchemalessSnapshotSplit second = chunk(ORDERS, 1, 100L, null, null);
        Map<String, SchemalessSnapshotSplit> assigned = new LinkedHashMap<>();
        assigned.put(first.splitId(), first);
        assigned.put(second.splitId(), second);
        Map<String, Offset> finished = new LinkedHashMap<>();
        finished.put(first.splitId(), high);
        List<? extends SourceSplitBase> splits;
        PendingSplitsState state;
        switch (what) {
            case "stream":
                finished.put(second.splitId(), high);
                Map<String, String> last = new LinkedHashMap<>(offset(23876999L, 740L).getOffset());
                last.put("lsn_proc", "23876999");
                last.put("lsn_commit", "23876424");
                splits = Collections.singletonList(new StreamSplit(
                        "stream-split", PostgresOffset.of(last), OFFSETS.createNoStoppingOffset(),
                        Arrays.asList(
                                new FinishedSnapshotSplitInfo(ORDERS, first.splitId(), null,
                                        new Object[] {100L}, high, OFFSETS),
                                new FinishedSnapshotSplitInfo(ORDERS, second.splitId(),
                                        new Object[] {100L}, null, high, OFFSETS)),
                        schemas(), 2, false, true));
                state = new HybridPendingSplitsState(
                        snapshot(assigned, finished, AssignerStatus.INITIAL_ASSIGNING_FINISHED,
                                Collections.emptyList(), Collections.emptyList(),
                                ChunkSplitterState.NO_SPLITTING_TABLE_STATE), true);
                break;
            case "initial":
                splits = Collections.singletonList(new StreamSplit(
                        "stream-split", OFFSETS.createInitialOffset(),
                        OFFSETS.createNoStoppingOffset(), Collections.emptyList(),
                        Collections.emptyMap(), 0, false, false));
                state = new StreamPendingSplitsState(true);
                break;
            case "snapshot":
                splits = Arrays.asList(
                        first.toSnapshotSplit(schemas().get(ORDERS)),
                        second.toSnapshotSplit(schemas().get(ORDERS)));
                state = new HybridPendingSplitsState(
                        snapshot(assigned, finished, AssignerStatus.INITIAL_ASSIGNING,
                                Collections.singletonList(chunk(LINES, 0, null, 500L, null)),
                                Collections.singletonList(RETURNS),
                                new ChunkSplitterState(
                                        LINES, ChunkSplitterState.ChunkBound.middleOf(500L), 1)),
                        false);
                break;
            default:
                throw new IllegalArgumentException("nothing is called " + what);
        }
        return HeldSource.savepoint(
                SERIALIZER, new PendingSplitsStateSerializer(SERIALIZER), splits, state, given);
    }

    private static Offset offset(long lsn, long transaction) {
        Map<String, String> offset = new LinkedHashMap<>();
        offset.put("lsn", Long.toString(lsn));
        offset.put("txId", Long.toString(transaction));
        offset.put("ts_usec", "1767225600000000");
        return PostgresOffset.of(offset);
    }

    private static SchemalessSnapshotSplit chunk(
            TableId table, int number, Long start, Long end, Offset high) {
        return new SchemalessSnapshotSplit(
                table, table + ":" + number, KEY, start == null ? null : new Object[] {start},
                end == null ? null : new Object[] {end}, high);
    }

    private static SnapshotPendingSplitsState snapshot(
            Map<String, SchemalessSnapshotSplit> assigned, Map<String, Offset> finished,
            AssignerStatus status, List<SchemalessSnapshotSplit> remaining, List<TableId> tables,
            ChunkSplitterState splitting) {
        return new SnapshotPendingSplitsState(
                Collections.singletonList(ORDERS), remaining, assigned, schemas(), finished, status,
                tables, false, true, Collections.singletonMap("shop.orders:0", 3L), splitting);
    }

    private static Map<TableId, TableChange> schemas() {
        Table table = Table.editor().tableId(ORDERS)
                .addColumn(Column.editor().name("id").type("int8").jdbcType(Types.BIGINT)
                        .optional(false).create())
                .setPrimaryKeyNames("id").create();
        return Collections.singletonMap(
                ORDERS, new TableChange(TableChanges.TableChangeType.CREATE, table));
    }
}
