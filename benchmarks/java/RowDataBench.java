import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointReader;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.api.functions.KeyedStateReaderFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.BooleanType;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.DoubleType;
import org.apache.flink.table.types.logical.TimestampType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.util.Collector;

/**
 * The peer for SQL state: Flink's own State Processor API, both cores, objects reused. It reads rows
 * and leaves their fields in the binary format.
 *
 * <pre>
 * write    backend= entries= to=
 * read     backend= savepoint=        rows are dropped
 * </pre>
 *
 * Prints the seconds that the job took.
 */
public class RowDataBench {
    private static final InternalTypeInfo<RowData> ROW = InternalTypeInfo.ofFields(
            new BigIntType(), VarCharType.STRING_TYPE, new DecimalType(10, 2), new TimestampType(3),
            new BooleanType(), new DoubleType());
    private static final OperatorIdentifier OPERATOR = OperatorIdentifier.forUid("orders");

    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            args.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.managed.size", "512m");
        conf.setString("rest.port", "0");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        env.getConfig().enableObjectReuse();
        StateBackend backend = args.get("backend").equals("rocksdb")
                ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
        if (words[0].equals("write")) {
            write(env, backend, Long.parseLong(args.get("entries")), args.get("to"));
        } else {
            SavepointReader.read(env, args.get("savepoint"), backend)
                    .readKeyedState(OPERATOR, new Reader(), Types.STRING, Types.TUPLE(Types.STRING, ROW))
                    .sinkTo(new DiscardingSink<>());
        }
        long start = System.nanoTime();
        env.execute(words[0]);
        System.out.println((System.nanoTime() - start) / 1e9);
        System.exit(0);
    }

    private static void write(StreamExecutionEnvironment env, StateBackend backend, long entries, String to) {
        DataStream<RowData> orders = env.fromSequence(0, entries - 1).map(RowDataBench::order).returns(ROW);
        SavepointWriter.newSavepoint(env, backend, 128)
                .withOperator(OPERATOR, OperatorTransformation.bootstrapWith(orders)
                        .keyBy(order -> "key-" + order.getLong(0), Types.STRING)
                        .transform(new Bootstrapper()))
                .write(to);
    }

    private static RowData order(long id) {
        return GenericRowData.of(
                id,
                id % 17 == 0 ? null : StringData.fromString((id % 2 == 0 ? "item-" : "i") + id % 10000),
                DecimalData.fromUnscaledLong(id % 1_000_000, 10, 2),
                TimestampData.fromEpochMillis(1_700_000_000_000L + id),
                id % 2 == 0,
                id % 10 == 3 ? null : id / 8.0);
    }

    static class Bootstrapper extends KeyedStateBootstrapFunction<String, RowData> {
        private transient ValueState<RowData> order;

        @Override
        public void open(OpenContext context) {
            order = getRuntimeContext().getState(new ValueStateDescriptor<>("order", ROW));
        }

        @Override
        public void processElement(RowData value, Context context) throws Exception {
            order.update(value);
        }
    }

    static class Reader extends KeyedStateReaderFunction<String, Tuple2<String, RowData>> {
        private transient ValueState<RowData> order;

        @Override
        public void open(OpenContext context) {
            order = getRuntimeContext().getState(new ValueStateDescriptor<>("order", ROW));
        }

        @Override
        public void readKey(String key, Context context, Collector<Tuple2<String, RowData>> out) throws Exception {
            out.collect(Tuple2.of(key, order.value()));
        }
    }
}
