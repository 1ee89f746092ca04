import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.configuration.ConfigOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterJobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.DataStreamSink;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.table.api.PlanReference;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.ProviderContext;
import org.apache.flink.table.connector.sink.DataStreamSinkProvider;
import org.apache.flink.table.connector.sink.DynamicTableSink;
import org.apache.flink.table.connector.source.DataStreamScanProvider;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.lookup.AsyncLookupFunctionProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.factories.DynamicTableFactory;
import org.apache.flink.table.factories.DynamicTableSinkFactory;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.factories.FactoryUtil;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.functions.AggregateFunction;
import org.apache.flink.table.functions.AsyncLookupFunction;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.functions.TableFunction;
import org.apache.flink.table.planner.plan.nodes.exec.ExecNodeContext;
import org.apache.flink.table.runtime.typeutils.InternalTypeInfo;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

/**
 * Jobs of Flink SQL over tables of which each job reads a part, line by line:
 *
 * <pre>
 * compile  SQL_FILE  PLAN_FILE
 * run      PLAN_FILE  RANGES  RESTORED  TO  BACKEND  PARALLELISM  OUTPUT_FILE  INLINE_BYTES
 * </pre>
 *
 * A table of the connector `halves` has its rows in the file of its option `rows`; RANGES says which of
 * them a job reads (`o:0-10,p:5-20`), by table. When all are read the job stops with a savepoint, so that
 * everything that was read is processed; lookups of a table with the option `async` are answered in jobs
 * that are restored, and wait in all others. What its sinks got is in OUTPUT_FILE. A PLAN_FILE that ends in
 * `.sql` is run without a plan.
 */
public class SqlHalves implements DynamicTableSourceFactory, DynamicTableSinkFactory {
    static final AtomicLong SEEN = new AtomicLong();
    static volatile boolean answers;
    static final Map<String, long[]> RANGES = new ConcurrentHashMap<>();
    static final Queue<String> OUTPUT = new ConcurrentLinkedQueue<>();
    static final ConfigOption<String> ROWS = ConfigOptions.key("rows").stringType().defaultValue("");
    static final ConfigOption<String> FORMAT = ConfigOptions.key("format").stringType().defaultValue("");
    static final ConfigOption<Boolean> UPDATING = ConfigOptions.key("updating").booleanType().defaultValue(false);
    static final ConfigOption<Boolean> ASYNC = ConfigOptions.key("async").booleanType().defaultValue(false);
    static final ConfigOption<Boolean> UPSERTS = ConfigOptions.key("upserts").booleanType().defaultValue(false);

    @Override
    public String factoryIdentifier() {
        return "halves";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return new HashSet<>();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return new HashSet<>(List.of(ROWS, FORMAT, UPDATING, ASYNC, UPSERTS));
    }

    @Override
    public DynamicTableSource createDynamicTableSource(DynamicTableFactory.Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        return new Rows(
                context.getObjectIdentifier().getObjectName(), helper.getOptions().get(ROWS),
                helper.getOptions().get(UPDATING), helper.getOptions().get(UPSERTS), helper.getOptions().get(ASYNC),
                context.getPhysicalRowDataType().getLogicalType());
    }

    @Override
    public DynamicTableSink createDynamicTableSink(DynamicTableFactory.Context context) {
        FactoryUtil.TableFactoryHelper helper = FactoryUtil.createTableFactoryHelper(this, context);
        return new Collected(
                context.getObjectIdentifier().getObjectName(), helper.getOptions().get(UPSERTS),
                context.getPhysicalRowDataType().getLogicalType());
    }

    /** The rows of a file, of which the job reads its range; a lookup finds all of them. */
    static class Rows implements ScanTableSource, LookupTableSource {
        private final String table;
        private final String file;
        private final boolean updating;
        private final boolean upserts;
        private final boolean async;
        private final LogicalType type;

        Rows(String table, String file, boolean updating, boolean upserts, boolean async, LogicalType type) {
            this.table = table;
            this.file = file;
            this.updating = updating;
            this.upserts = upserts;
            this.async = async;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode() {
            return upserts ? ChangelogMode.upsert() : updating ? ChangelogMode.all() : ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            return new DataStreamScanProvider() {
                @Override
                public DataStream<RowData> produceDataStream(ProviderContext ids, StreamExecutionEnvironment env) {
                    DataStream<Long> numbers = env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1);
                    ids.generateUid("numbers").ifPresent(id -> uid(numbers, id));
                    DataStream<RowData> rows = numbers.flatMap(new Reader(table, file, upserts, type.getChildren()))
                            .returns(InternalTypeInfo.<RowData>of(type)).setParallelism(1);
                    ids.generateUid("rows").ifPresent(id -> uid(rows, id));
                    return rows;
                }

                @Override
                public boolean isBounded() {
                    return false;
                }
            };
        }

        private static void uid(DataStream<?> stream, String id) {
            stream.getTransformation().setUid(id);
        }

        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            Lookup lookup = new Lookup(file, type.getChildren(), context.getKeys());
            return async ? AsyncLookupFunctionProvider.of(new LateLookup(lookup)) : LookupFunctionProvider.of(lookup);
        }

        @Override
        public DynamicTableSource copy() {
            return new Rows(table, file, updating, upserts, async, type);
        }

        @Override
        public String asSummaryString() {
            return "halves";
        }
    }

    /** Finds the rows of a file whose fields are those of a key. */
    public static class Lookup extends LookupFunction {
        private final String file;
        private final List<LogicalType> types;
        private final int[][] keys;

        Lookup(String file, List<LogicalType> types, int[][] keys) {
            this.file = file;
            this.types = types;
            this.keys = keys;
        }

        @Override
        public Collection<RowData> lookup(RowData key) throws IOException {
            List<RowData> found = new ArrayList<>();
            for (String line : Files.readAllLines(Path.of(file))) {
                GenericRowData row = Reader.row(line, types);
                boolean equal = true;
                for (int i = 0; i < keys.length; i++) {
                    Object wanted = RowData.createFieldGetter(types.get(keys[i][0]), i).getFieldOrNull(key);
                    equal &= wanted != null && wanted.equals(row.getField(keys[i][0]));
                }
                if (equal) {
                    found.add(row);
                }
            }
            return found;
        }
    }

    /** Answers in a job that is restored alone: in any other all records wait. */
    public static class LateLookup extends AsyncLookupFunction {
        private final Lookup lookup;

        LateLookup(Lookup lookup) {
            this.lookup = lookup;
        }

        @Override
        public CompletableFuture<Collection<RowData>> asyncLookup(RowData key) {
            try {
                return answers ? CompletableFuture.completedFuture(lookup.lookup(key)) : new CompletableFuture<>();
            } catch (IOException problem) {
                return CompletableFuture.failedFuture(problem);
            }
        }
    }

    static class Reader implements FlatMapFunction<Long, RowData> {
        private final String table;
        private final String file;
        private final boolean upserts;
        private final List<LogicalType> types;
        private transient List<String> lines;
        private transient int next;
        private transient long end;

        Reader(String table, String file, boolean upserts, List<LogicalType> types) {
            this.table = table;
            this.file = file;
            this.upserts = upserts;
            this.types = types;
        }

        @Override
        public void flatMap(Long number, org.apache.flink.util.Collector<RowData> out) throws Exception {
            if (lines == null) {
                lines = Files.readAllLines(Path.of(file));
                long[] range = RANGES.getOrDefault(table, new long[] {0, 0});
                next = (int) range[0];
                end = Math.min(range[1], lines.size());
            }
            if (next >= end) {
                Thread.sleep(2);
                return;
            }
            GenericRowData row = row(lines.get(next++), types);
            if (!upserts || row.getRowKind() != RowKind.UPDATE_BEFORE) { // which no table of upserts gets
                out.collect(row);
            }
            SEEN.incrementAndGet();
        }

        static GenericRowData row(String line, List<LogicalType> types) {
            String[] words = line.split("\\|", -1);
            GenericRowData row = new GenericRowData(types.size());
            row.setRowKind(kind(words[0]));
            for (int i = 0; i < types.size(); i++) {
                row.setField(i, value(words[i + 1], types.get(i)));
            }
            return row;
        }

        private static RowKind kind(String word) {
            for (RowKind kind : RowKind.values()) {
                if (kind.shortString().equals(word)) {
                    return kind;
                }
            }
            throw new IllegalArgumentException(word);
        }

        private static Object value(String word, LogicalType type) {
            if (word.equals("\\N")) {
                return null;
            }
            switch (type.getTypeRoot()) {
                case BIGINT:
                    return Long.valueOf(word);
                case INTEGER:
                    return Integer.valueOf(word);
                case SMALLINT:
                    return Short.valueOf(word);
                case TINYINT:
                    return Byte.valueOf(word);
                case DOUBLE:
                    return Double.valueOf(word);
                case BOOLEAN:
                    return Boolean.valueOf(word);
                case VARCHAR:
                    return StringData.fromString(word);
                case DECIMAL:
                    DecimalType decimal = (DecimalType) type;
                    return DecimalData.fromBigDecimal(
                            new BigDecimal(word), decimal.getPrecision(), decimal.getScale());
                case TIMESTAMP_WITHOUT_TIME_ZONE:
                    return TimestampData.fromLocalDateTime(LocalDateTime.parse(word));
                case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                    return TimestampData.fromEpochMillis(Long.parseLong(word));
                default:
                    throw new IllegalArgumentException(type.toString());
            }
        }
    }

    /** A sum of values by a weight, and how many there were. */
    public static class Weighted extends AggregateFunction<Long, Weighted.Held> {
        public static class Held {
            public long sum;
            public long count;
        }

        @Override
        public Held createAccumulator() {
            return new Held();
        }

        @Override
        public Long getValue(Held held) {
            return held.sum + 1000 * held.count;
        }

        public void accumulate(Held held, Long value) {
            held.sum += value == null ? 0 : 3 * value;
            held.count++;
        }

        public void retract(Held held, Long value) {
            held.sum -= value == null ? 0 : 3 * value;
            held.count--;
        }
    }

    /** The letters of a text, each in a row. */
    @FunctionHint(output = @DataTypeHint("ROW<letter STRING>"))
    public static class Letters extends TableFunction<Row> {
        public void eval(String text) {
            for (int i = 0; text != null && i < text.length(); i++) {
                collect(Row.of(text.substring(i, i + 1)));
            }
        }
    }

    /** Keeps what it gets as lines of text: its name, the kind of change, the fields. */
    static class Collected implements DynamicTableSink {
        private final String table;
        private final boolean upserts;
        private final LogicalType type;

        Collected(String table, boolean upserts, LogicalType type) {
            this.table = table;
            this.upserts = upserts;
            this.type = type;
        }

        @Override
        public ChangelogMode getChangelogMode(ChangelogMode requested) {
            return upserts ? ChangelogMode.upsert() : ChangelogMode.all();
        }

        @Override
        public SinkRuntimeProvider getSinkRuntimeProvider(Context context) {
            return new DataStreamSinkProvider() {
                @Override
                public DataStreamSink<?> consumeDataStream(ProviderContext ids, DataStream<RowData> rows) {
                    DataStream<String> lines = rows.map(new Line(table, type.getChildren()))
                            .setParallelism(rows.getTransformation().getParallelism());
                    ids.generateUid("lines").ifPresent(id -> lines.getTransformation().setUid(id));
                    DataStreamSink<String> sink = discarded(lines);
                    ids.generateUid("discard").ifPresent(sink::uid);
                    return sink;
                }
            };
        }

        @SuppressWarnings("unchecked")
        private static DataStreamSink<String> discarded(DataStream<String> lines) {
            String sinks = "org.apache.flink.streaming.api.functions.sink.";
            try {
                try {
                    Class<?> sink = Class.forName(sinks + "v2.DiscardingSink");
                    return lines.sinkTo((Sink<String>) sink.getConstructor().newInstance());
                } catch (ClassNotFoundException beforeFlink119) {
                    return (DataStreamSink<String>) DataStream.class
                            .getMethod("addSink", Class.forName(sinks + "SinkFunction"))
                            .invoke(lines, Class.forName(sinks + "DiscardingSink").getConstructor().newInstance());
                }
            } catch (ReflectiveOperationException other) {
                throw new IllegalStateException(other);
            }
        }

        @Override
        public DynamicTableSink copy() {
            return new Collected(table, upserts, type);
        }

        @Override
        public String asSummaryString() {
            return "halves";
        }
    }

    static class Line implements MapFunction<RowData, String> {
        private final String table;
        private final List<LogicalType> types;

        Line(String table, List<LogicalType> types) {
            this.table = table;
            this.types = types;
        }

        @Override
        public String map(RowData row) {
            StringBuilder line = new StringBuilder(table).append('|').append(row.getRowKind().shortString());
            for (int i = 0; i < types.size(); i++) {
                Object value = RowData.createFieldGetter(types.get(i), i).getFieldOrNull(row);
                line.append('|').append(value == null ? "\\N" : value.toString());
            }
            OUTPUT.add(line.toString());
            return "";
        }
    }

    /** Jobs are submitted to a cluster that all share. */
    static class Shared extends StreamExecutionEnvironment {
        private final SavepointRestoreSettings restored;
        JobID submitted;

        Shared(Configuration conf, SavepointRestoreSettings restored) {
            super(conf);
            this.restored = restored;
        }

        @Override
        public JobClient executeAsync(StreamGraph graph) throws Exception {
            MiniCluster cluster = Cluster.of(graph.getJobGraph().getMaximumParallelism());
            JobGraph job = graph.getJobGraph();
            job.setSavepointRestoreSettings(restored);
            submitted = cluster.submitJob(job).get().getJobID();
            return new MiniClusterJobClient(
                    submitted, cluster, SqlHalves.class.getClassLoader(),
                    MiniClusterJobClient.JobFinalizationBehavior.NOTHING);
        }
    }

    public static void main(String[] ignored) throws Exception {
        System.setProperty("managed", "2g"); // of all slots: local windows want a part of one's
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = "ok " + answer(line.split("\t", -1));
            } catch (Throwable problem) {
                StringBuilder text = new StringBuilder("error");
                for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
                    text.append(' ').append(String.valueOf(cause).replaceAll("\\s+", " ")).append(" <-");
                }
                answer = text.toString();
                if (System.getenv("STACK") != null) {
                    problem.printStackTrace();
                }
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "compile":
                return compile(Path.of(words[1]), Path.of(words[2]));
            case "run":
                return run(words);
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static StreamTableEnvironment tables(StreamExecutionEnvironment env) {
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        return tables;
    }

    /** The inserts of a file, whose other statements are executed. */
    private static List<String> prepared(StreamTableEnvironment tables, Path file) throws Exception {
        List<String> inserts = new ArrayList<>();
        for (String statement : Files.readString(file).split(";\\s*(\n|$)")) {
            String sql = statement.strip();
            if (sql.startsWith("SET ")) {
                String[] parts = sql.split("'");
                tables.getConfig().set(parts[1], parts[3]);
            } else if (sql.startsWith("INSERT")) {
                inserts.add(sql);
            } else if (sql.startsWith("SELECT")) {
                // a sink of the query's own columns
                String sink = "sink_" + inserts.size();
                Schema schema = Schema.newBuilder().fromRowDataType(
                        tables.sqlQuery(sql).getResolvedSchema().toPhysicalRowDataType()).build();
                tables.createTable(sink, TableDescriptor.forConnector("halves").schema(schema).build());
                inserts.add("INSERT INTO " + sink + " " + sql);
            } else if (!sql.isEmpty()) {
                tables.executeSql(sql);
            }
        }
        return inserts;
    }

    private static String compile(Path file, Path plan) throws Exception {
        StreamTableEnvironment tables = tables(StreamExecutionEnvironment.getExecutionEnvironment());
        List<String> inserts = prepared(tables, file);
        ExecNodeContext.resetIdCounter(); // as in a JVM that compiles one plan
        if (inserts.size() == 1) {
            Files.writeString(plan, tables.compilePlanSql(inserts.get(0)).asJsonString());
        } else {
            StatementSet all = tables.createStatementSet();
            inserts.forEach(all::addInsertSql);
            Files.writeString(plan, all.compilePlan().asJsonString());
        }
        return plan.toString();
    }

    private static String run(String[] words) throws Exception {
        long expected = 0;
        RANGES.clear();
        OUTPUT.clear();
        SEEN.set(0);
        answers = !words[3].isEmpty();
        for (String range : words[2].split(",")) {
            String[] parts = range.split("[:-]");
            RANGES.put(parts[0], new long[] {Long.parseLong(parts[1]), Long.parseLong(parts[2])});
            expected += Long.parseLong(parts[2]) - Long.parseLong(parts[1]);
        }
        Configuration conf = new Configuration();
        conf.setString("state.backend.type", words[5]);
        conf.setString("restart-strategy.type", "none");
        conf.setString("pipeline.auto-watermark-interval", "1ms");
        conf.setString("execution.checkpointing.data-inline-threshold", words[8]);
        Shared env = new Shared(conf, words[3].isEmpty()
                ? SavepointRestoreSettings.none()
                : SavepointRestoreSettings.forPath(words[3], false));
        env.setParallelism(Integer.parseInt(words[6]));
        env.setMaxParallelism(128);
        StreamTableEnvironment tables = tables(env);
        Path plan = Path.of(words[1]);
        if (words[1].endsWith(".sql")) {
            StatementSet all = tables.createStatementSet();
            prepared(tables, plan).forEach(all::addInsertSql);
            all.execute();
        } else {
            tables.loadPlan(PlanReference.fromFile(plan)).execute();
        }
        MiniCluster cluster = Cluster.of(env.getParallelism());
        JobID job = env.submitted;
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        try {
            while (SEEN.get() < expected) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("read " + SEEN.get() + " of " + expected + " rows");
                }
                refuseEnded(cluster, job);
                Thread.sleep(5);
            }
            Thread.sleep(60); // timers of what was read, and periodic watermarks
            while (true) {
                try {
                    String made = cluster.stopWithSavepoint(job, words[4], false, SavepointFormatType.CANONICAL)
                            .get(1, TimeUnit.MINUTES);
                    cluster.requestJobResult(job).get();
                    Files.write(Path.of(words[7]), new ArrayList<>(OUTPUT));
                    return made;
                } catch (Exception notYet) { // some task is still starting
                    refuseEnded(cluster, job);
                    if (System.nanoTime() > deadline) {
                        throw notYet;
                    }
                    Thread.sleep(30);
                }
            }
        } catch (Throwable problem) {
            if (!cluster.getJobStatus(job).get().isGloballyTerminalState()) {
                cluster.cancelJob(job).get();
                cluster.requestJobResult(job).get();
            }
            throw problem;
        }
    }

    private static void refuseEnded(MiniCluster cluster, JobID job) throws Exception {
        JobStatus status = cluster.getJobStatus(job).get();
        if (status.isGloballyTerminalState()) {
            Cluster.result(cluster, job); // why it failed
            throw new IllegalStateException("the job is " + status);
        }
    }
}
