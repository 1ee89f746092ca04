import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
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
import org.apache.flink.util.Collector;
import org.apache.parquet.example.data.Group;
import org.apache.parquet.example.data.simple.SimpleGroupFactory;
import org.apache.parquet.hadoop.ParquetWriter;
import org.apache.parquet.hadoop.example.ExampleParquetWriter;
import org.apache.parquet.hadoop.metadata.CompressionCodecName;
import org.apache.parquet.io.LocalOutputFile;
import org.apache.parquet.schema.MessageType;
import org.apache.parquet.schema.MessageTypeParser;

/**
 * The peer of every benchmark here: Flink's own State Processor API, both cores.
 *
 * <pre>
 * write    backend= compression= entries= keybytes= valuebytes= max= to=
 * read     backend= savepoint=                 rows are dropped
 * parquet  backend= savepoint= to=             one Parquet file a subtask
 * rewrite  backend= compression= savepoint= max= parallelism= to=
 * </pre>
 *
 * Prints the seconds that the job took.
 */
public class StateProcessorBench {
    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            args.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        StreamExecutionEnvironment env = environment(args);
        prepare(env, words[0], args);
        long start = System.nanoTime();
        env.execute(words[0]);
        System.out.println((System.nanoTime() - start) / 1e9);
        System.exit(0);
    }

    private static StreamExecutionEnvironment environment(Map<String, String> args) {
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.managed.size", "512m");
        conf.setString("rest.port", "0");
        conf.setString("execution.checkpointing.snapshot-compression", args.getOrDefault("compression", "false"));
        int parallelism = Integer.parseInt(args.getOrDefault("parallelism", "2"));
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        return env;
    }

    private static StateBackend backend(Map<String, String> args) {
        return args.get("backend").equals("rocksdb")
                ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
    }

    private static void prepare(StreamExecutionEnvironment env, String command, Map<String, String> args)
            throws Exception {
        boolean number = args.getOrDefault("valuebytes", "8").equals("8");
        if (command.equals("write")) {
            long entries = Long.parseLong(args.get("entries"));
            int width = Integer.parseInt(args.getOrDefault("keybytes", "11"));
            int size = Integer.parseInt(args.getOrDefault("valuebytes", "8"));
            DataStream<Long> numbers = env.fromSequence(0, entries - 1);
            if (number) {
                write(env, args, numbers.map(n -> Tuple2.of(pad("key-" + n, width), n * 7))
                        .returns(Types.TUPLE(Types.STRING, Types.LONG)), Types.LONG);
            } else {
                write(env, args, numbers.map(n -> Tuple2.of(pad("key-" + n, width), pad("value-" + n, size)))
                        .returns(Types.TUPLE(Types.STRING, Types.STRING)), Types.STRING);
            }
            return;
        }
        SavepointReader savepoint = SavepointReader.read(env, args.get("savepoint"), backend(args));
        if (number) {
            use(env, command, args, read(savepoint, Types.LONG), Types.LONG);
        } else {
            use(env, command, args, read(savepoint, Types.STRING), Types.STRING);
        }
    }

    private static <T> DataStream<Tuple2<String, T>> read(
            SavepointReader savepoint, TypeInformation<T> type)
            throws Exception {
        return savepoint.readKeyedState(OperatorIdentifier.forUid("counter"), new Reader<>(type),
                Types.STRING, Types.TUPLE(Types.STRING, type));
    }

    private static <T> void use(StreamExecutionEnvironment env, String command, Map<String, String> args,
            DataStream<Tuple2<String, T>> rows, TypeInformation<T> type)
            throws Exception {
        switch (command) {
            case "read":
                rows.sinkTo(new DiscardingSink<>());
                return;
            case "parquet":
                rows.map(new ParquetSink<T>(args.get("to"))).returns(Types.LONG)
                        .sinkTo(new DiscardingSink<>());
                return;
            case "rewrite":
                write(env, args, rows, type);
                return;
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private static <T> void write(StreamExecutionEnvironment env, Map<String, String> args,
            DataStream<Tuple2<String, T>> rows, TypeInformation<T> type) {
        SavepointWriter
                .newSavepoint(env, backend(args), Integer.parseInt(args.getOrDefault("max", "128")))
                .withOperator(OperatorIdentifier.forUid("counter"),
                        OperatorTransformation.bootstrapWith(rows)
                                .keyBy(row -> row.f0, Types.STRING)
                                .transform(new Bootstrapper<>(type)))
                .write(args.get("to"));
    }

    private static String pad(String text, int width) {
        StringBuilder padded = new StringBuilder(text);
        while (padded.length() < width) {
            padded.append((char) ('a' + padded.length() % 26));
        }
        return padded.toString();
    }

    static class Bootstrapper<T> extends KeyedStateBootstrapFunction<String, Tuple2<String, T>> {
        private final TypeInformation<T> type;
        private transient ValueState<T> count;

        Bootstrapper(TypeInformation<T> type) {
            this.type = type;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", type));
        }

        @Override
        public void processElement(Tuple2<String, T> row, Context context) throws Exception {
            count.update(row.f1);
        }
    }

    static class Reader<T> extends KeyedStateReaderFunction<String, Tuple2<String, T>> {
        private final TypeInformation<T> type;
        private transient ValueState<T> count;

        Reader(TypeInformation<T> type) {
            this.type = type;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", type));
        }

        @Override
        public void readKey(String key, Context context, Collector<Tuple2<String, T>> out)
                throws Exception {
            out.collect(Tuple2.of(key, count.value()));
        }
    }

    /** Writes key and value into a Parquet file of its subtask, with Parquet's own writer. */
    static class ParquetSink<T> extends RichMapFunction<Tuple2<String, T>, Long> {
        private static final MessageType SCHEMA = MessageTypeParser.parseMessageType(
                "message entry { required binary key (STRING); required int64 value; }");
        private final String directory;
        private transient ParquetWriter<Group> writer;
        private transient SimpleGroupFactory groups;
        private transient long written;

        ParquetSink(String directory) {
            this.directory = directory;
        }

        @Override
        public void open(OpenContext context) throws Exception {
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            groups = new SimpleGroupFactory(SCHEMA);
            writer = ExampleParquetWriter.builder(new LocalOutputFile(Path.of(directory, subtask + ".parquet")))
                    .withType(SCHEMA)
                    .withCompressionCodec(CompressionCodecName.UNCOMPRESSED)
                    .withDictionaryEncoding(false)
                    .build();
        }

        @Override
        public Long map(Tuple2<String, T> row) throws Exception {
            Group group = groups.newGroup();
            group.add(0, row.f0);
            group.add(1, (Long) row.f1);
            writer.write(group);
            return ++written;
        }

        @Override
        public void close() throws Exception {
            if (writer != null) {
                writer.close();
            }
        }
    }
}
