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
import org.apache.flink.cdc.connectors.mysql.source.assigners.AssignerStatus;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.BinlogPendingSplitsState;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.ChunkSplitterState;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.HybridPendingSplitsState;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.PendingSplitsState;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.PendingSplitsStateSerializer;
import org.apache.flink.cdc.connectors.mysql.source.assigners.state.SnapshotPendingSplitsState;
import org.apache.flink.cdc.connectors.mysql.source.offset.BinlogOffset;
import org.apache.flink.cdc.connectors.mysql.source.split.FinishedSnapshotSplitInfo;
import org.apache.flink.cdc.connectors.mysql.source.split.MySqlBinlogSplit;
import org.apache.flink.cdc.connectors.mysql.source.split.MySqlSchemalessSnapshotSplit;
import org.apache.flink.cdc.connectors.mysql.source.split.MySqlSnapshotSplit;
import org.apache.flink.cdc.connectors.mysql.source.split.MySqlSplit;
import org.apache.flink.cdc.connectors.mysql.source.split.MySqlSplitSerializer;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.RowType;

/**
 * Savepoints with the state of Flink CDC's MySQL source, by its serializers:
 *
 * <pre>
 * binlog    DIRECTORY   the snapshot is read, and the binary log is being read, by position
 * gtid      DIRECTORY   the binary log is read by GTID, without a snapshot
 * snapshot  DIRECTORY   a chunk is read, one is being read, a table is split, another one waits
 * starts    SPLIT       no savepoint: the offset from which a split in hexadecimal digits is read
 * </pre>
 */
public class MySqlStates {
    private static final TableId ORDERS = new TableId("shop", null, "orders");
    private static final TableId LINES = new TableId("shop", null, "lines");
    private static final TableId RETURNS = new TableId("shop", null, "returns");
    private static final RowType KEY =
            (RowType) RowType.of(new org.apache.flink.table.types.logical.LogicalType[] {
                    new BigIntType(false)}, new String[] {"id"});

    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> run(words[0], words[1]));
    }

    private static String run(String what, String given) throws Exception {
        if (what.equals("starts")) {
            byte[] split = new java.math.BigInteger("01" + given, 16).toByteArray();
            return MySqlSplitSerializer.INSTANCE
                    .deserialize(4, Arrays.copyOfRange(split, 1, split.length))
                    .asBinlogSplit().getStartingOffset().toString();
        }
        BinlogOffset high = BinlogOffset.builder().setBinlogFilePosition("mysql-bin.000003", 154)
                .setGtidSet("24bc7850-2c16-11e6-a073-0242ac110002:1-5").build();
        MySqlSchemalessSnapshotSplit first = chunk(ORDERS, 0, null, 100L, high);
        MySqlSchemalessSnapshotSplit second = chunk(ORDERS, 1, 100L, null, null);
        List<? extends MySqlSplit> splits;
        PendingSplitsState state;
        Map<String, MySqlSchemalessSnapshotSplit> assigned = new LinkedHashMap<>();
        assigned.put(first.splitId(), first);
        assigned.put(second.splitId(), second);
        Map<String, BinlogOffset> finished = new LinkedHashMap<>();
        finished.put(first.splitId(), high);
        switch (what) {
            case "binlog":
                BinlogOffset at = BinlogOffset.builder()
                        .setBinlogFilePosition("mysql-bin.000004", 4711)
                        .setSkipEvents(3).setSkipRows(1)
                        .setGtidSet("24bc7850-2c16-11e6-a073-0242ac110002:1-77")
                        .setTimestampSec(1767225600L).setServerId(1).build();
                splits = Collections.singletonList(new MySqlBinlogSplit(
                        "binlog-split", at, BinlogOffset.ofNonStopping(),
                        Arrays.asList(
                                new FinishedSnapshotSplitInfo(
                                        ORDERS, first.splitId(), null, new Object[] {100L}, high),
                                new FinishedSnapshotSplitInfo(
                                        ORDERS, second.splitId(), new Object[] {100L}, null, high)),
                        schemas(), 2, false));
                finished.put(second.splitId(), high);
                state = new HybridPendingSplitsState(
                        snapshot(assigned, finished, AssignerStatus.INITIAL_ASSIGNING_FINISHED,
                                Collections.emptyList(), Collections.emptyList(),
                                ChunkSplitterState.NO_SPLITTING_TABLE_STATE), true);
                break;
            case "gtid":
                splits = Collections.singletonList(new MySqlBinlogSplit(
                        "binlog-split",
                        BinlogOffset.ofGtidSet("24bc7850-2c16-11e6-a073-0242ac110002:1-100"),
                        BinlogOffset.ofNonStopping(), Collections.emptyList(),
                        Collections.emptyMap(), 0, true));
                state = new BinlogPendingSplitsState(true);
                break;
            case "snapshot":
                splits = Arrays.asList(
                        first.toMySqlSnapshotSplit(schemas().get(ORDERS)),
                        second.toMySqlSnapshotSplit(schemas().get(ORDERS)));
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
                MySqlSplitSerializer.INSTANCE,
                new PendingSplitsStateSerializer(MySqlSplitSerializer.INSTANCE), splits, state,
                given);
    }

    private static MySqlSchemalessSnapshotSplit chunk(
            TableId table, int number, Long start, Long end, BinlogOffset high) {
        return new MySqlSchemalessSnapshotSplit(
                table, MySqlSnapshotSplit.generateSplitId(table, number), KEY,
                start == null ? null : new Object[] {start},
                end == null ? null : new Object[] {end}, high);
    }

    private static SnapshotPendingSplitsState snapshot(
            Map<String, MySqlSchemalessSnapshotSplit> assigned, Map<String, BinlogOffset> finished,
            AssignerStatus status, List<MySqlSchemalessSnapshotSplit> remaining,
            List<TableId> tables, ChunkSplitterState splitting) {
        return new SnapshotPendingSplitsState(
                Collections.singletonList(ORDERS), remaining, assigned, schemas(), finished, status,
                tables, false, true, splitting);
    }

    private static Map<TableId, TableChange> schemas() {
        Table table = Table.editor().tableId(ORDERS)
                .addColumn(Column.editor().name("id").type("BIGINT").jdbcType(Types.BIGINT)
                        .optional(false).create())
                .setPrimaryKeyNames("id").create();
        return Collections.singletonMap(
                ORDERS, new TableChange(TableChanges.TableChangeType.CREATE, table));
    }
}
