import java.math.BigDecimal;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.types.Row;

/**
 * One job of many queries, so that each operator of Flink SQL that keeps state has some: it reads two
 * tables of a few rows, idles, and a canonical savepoint is taken.
 *
 * <pre>
 * SqlQueries BACKEND DIRECTORY                where to take the savepoint
 * SqlQueries BACKEND DIRECTORY SAVEPOINT      the same of a job that is restored first
 * </pre>
 *
 * With `-Dnew-queries=true` its queries are others, of operators that came with Flink 2.1 to 2.3.
 * Prints where the savepoint is.
 */
public class SqlQueries {
    static final AtomicLong SEEN = new AtomicLong();
    static final long ROWS = 24;
    private static final boolean NEW = Boolean.getBoolean("new-queries");
    private static final int PARALLELISM = Integer.getInteger("parallelism", 2);
    private static final String RANKED = "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY ";

    private static final String[] QUERIES = {
        "SELECT COUNT(*), SUM(price), MAX(name) FROM o",
        "SELECT c, MAX(m), LISTAGG(l), FIRST_VALUE(m), COUNT(DISTINCT l) FROM "
                + "(SELECT g, COUNT(*) AS c, MAX(price) AS m, MAX(name) AS l FROM o GROUP BY g) GROUP BY c",
        "SELECT g, ARRAY_AGG(name), LAST_VALUE(happened) FROM o GROUP BY g",
        "SELECT o.*, p.name AS other FROM o JOIN p ON o.g = p.g AND o.price < p.price",
        "SELECT a.g, a.m, b.m AS n FROM (SELECT g, MAX(price) AS m FROM o GROUP BY g) a "
                + "FULL OUTER JOIN (SELECT g, MAX(happened) AS m FROM p GROUP BY g) b ON a.g = b.g",
        "SELECT * FROM o WHERE g IN (SELECT g FROM p WHERE price > 1)",
        RANKED + "g ORDER BY price DESC) AS rn FROM o) WHERE rn <= 3",
        RANKED + "h ORDER BY m DESC) AS rn FROM (SELECT g, MOD(g, 3) AS h, SUM(price) AS m FROM o GROUP BY g)) WHERE rn <= 2",
        RANKED + "g ORDER BY ts DESC) AS rn FROM o) WHERE rn = 1",
        "SELECT id, SUM(price) OVER (PARTITION BY g ORDER BY ts ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) FROM o",
        "SELECT id, LAG(name, 2) OVER (PARTITION BY g ORDER BY ts) FROM o",
        "SELECT g, window_start, COUNT(DISTINCT name) FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
                + "GROUP BY g, window_start, window_end",
        "SELECT g, SESSION_START(ts, INTERVAL '1' HOUR), COUNT(*) FROM o GROUP BY g, SESSION(ts, INTERVAL '1' HOUR)",
        "SELECT id, rn FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY price DESC) AS rn "
                + "FROM TABLE(TUMBLE(TABLE o, DESCRIPTOR(ts), INTERVAL '1' HOUR))) WHERE rn <= 3",
        "SELECT o.id, p.id AS other FROM o, p WHERE o.g = p.g AND "
                + "o.ts BETWEEN p.ts - INTERVAL '10' SECOND AND p.ts + INTERVAL '10' SECOND",
        "SELECT o.g, v.price FROM o LEFT JOIN versions FOR SYSTEM_TIME AS OF o.ts AS v ON o.g = v.g",
    };

    /** What is new since Flink 2.1: joins of more than two tables at once (MultiJoin). */
    private static final String[] NEW_QUERIES = {
        "SELECT o.id, p.price, q.name FROM o JOIN p ON o.g = p.g LEFT JOIN q ON o.g = q.g",
        "SELECT a.g, a.m, b.m AS n, c.m AS l FROM (SELECT g, MAX(price) AS m FROM o GROUP BY g) a "
                + "JOIN (SELECT g, MAX(happened) AS m FROM p GROUP BY g) b ON a.g = b.g "
                + "JOIN (SELECT g, COUNT(*) AS m FROM q GROUP BY g) c ON a.g = c.g",
        "SELECT a.id, b.id AS other, q.name FROM (SELECT id, MAX(g) AS g FROM o GROUP BY id) a "
                + "JOIN (SELECT id, MAX(g) AS g FROM p GROUP BY id) b ON a.g = b.g JOIN q ON a.g = q.g",
    };

    public static void main(String[] words) {
        try {
            System.out.println(savepoint(words));
            Runtime.getRuntime().halt(0);
        } catch (Throwable problem) {
            problem.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private static String savepoint(String[] words) throws Exception {
        StreamExecutionEnvironment env = environment(words);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        tables.getConfig().set("table.exec.sink.upsert-materialize-strategy.type", "MAP");
        table(tables, env, "o");
        table(tables, env, "p");
        if (NEW) {
            table(tables, env, "q");
            tables.getConfig().set("table.optimizer.multi-join.enabled", "true");
        }
        tables.executeSql("CREATE TEMPORARY VIEW versions AS SELECT g, price, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
                + "g ORDER BY ts DESC) AS rn FROM p) WHERE rn = 1");
        StreamStatementSet statements = tables.createStatementSet();
        for (String query : NEW ? NEW_QUERIES : QUERIES) {
            Table result = tables.sqlQuery(query);
            Schema schema = Schema.newBuilder().fromResolvedSchema(result.getResolvedSchema()).build();
            statements.add(result.insertInto(TableDescriptor.forConnector("blackhole").schema(schema).build()));
        }
        tables.executeSql("CREATE TEMPORARY TABLE keyed (g BIGINT, m DECIMAL(20, 2), PRIMARY KEY (g) NOT ENFORCED) "
                + "WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO keyed SELECT x.m, x.s FROM (SELECT g, MAX(g) AS m, SUM(price) AS s FROM o "
                + "GROUP BY g) x ON CONFLICT DO DEDUPLICATE");
        statements.attachAsDataStream();
        JobClient job = env.executeAsync("queries");
        return savepointOf(job, words, SEEN, (NEW ? 3 : 2) * ROWS);
    }

    /** Where the savepoint of a job is, taken when it has seen its rows, or soon after it was restored. */
    static String savepointOf(JobClient job, String[] words, AtomicLong seen, long rows) throws Exception {
        boolean restored = words.length > 2;
        CompletableFuture<?> end = job.getJobExecutionResult();
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        while (!restored && !end.isDone() && seen.get() < rows && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
        Thread.sleep(2000);
        while (true) {
            if (end.isDone()) {
                end.get(); // why it failed
            }
            try {
                return job.triggerSavepoint(words[1], SavepointFormatType.CANONICAL).get(2, TimeUnit.MINUTES);
            } catch (ExecutionException notYet) { // some task is still starting
                if (job.getJobStatus().get().isGloballyTerminalState() || System.nanoTime() > deadline) {
                    throw notYet;
                }
                Thread.sleep(1000);
            }
        }
    }

    static StreamExecutionEnvironment environment(String[] words) {
        Configuration conf = new Configuration();
        conf.setString("state.backend.type", words[0]);
        conf.setString("restart-strategy.type", "none");
        conf.setString("rest.port", "0");
        conf.setString("execution.checkpointing.data-inline-threshold", "0");
        conf.setString("taskmanager.numberOfTaskSlots", String.valueOf(PARALLELISM));
        conf.setString("taskmanager.memory.network.min", "256m");
        conf.setString("taskmanager.memory.network.max", "256m");
        conf.setString("taskmanager.memory.managed.size", "512m");
        if (words.length > 2) {
            conf.setString("execution.state-recovery.path", words[2]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(PARALLELISM, conf);
        env.setMaxParallelism(128);
        return env;
    }

    static void table(StreamTableEnvironment tables, StreamExecutionEnvironment env, String name) {
        tables.createTemporaryView(name, rows(env, name), Schema.newBuilder()
                .column("id", DataTypes.BIGINT().notNull())
                .column("g", DataTypes.BIGINT())
                .column("name", DataTypes.STRING())
                .column("price", DataTypes.DECIMAL(20, 2))
                .column("happened", DataTypes.TIMESTAMP(9))
                .column("ts", DataTypes.TIMESTAMP_LTZ(3))
                .column("tags", DataTypes.ARRAY(DataTypes.STRING()))
                .watermark("ts", "ts - INTERVAL '5' SECOND")
                .build());
    }

    private static DataStream<Row> rows(StreamExecutionEnvironment env, String name) {
        return env.fromSequence(0, Long.MAX_VALUE - 1).setParallelism(1).uid(name + "-source")
                .flatMap((FlatMapFunction<Long, Row>) (number, out) -> {
                    if (number < ROWS) {
                        out.collect(row(number));
                        SEEN.incrementAndGet();
                    } else {
                        Thread.sleep(5);
                    }
                })
                .returns(Types.ROW_NAMED(
                        new String[] {"id", "g", "name", "price", "happened", "ts", "tags"},
                        Types.LONG, Types.LONG, Types.STRING, Types.BIG_DEC, Types.LOCAL_DATE_TIME, Types.INSTANT,
                        Types.OBJECT_ARRAY(Types.STRING)))
                .setParallelism(1).uid(name);
    }

    private static String word(long k) {
        return k % 7 == 0 ? "größe-" + k : k % 11 == 0 ? "键😀-" + k : "word-" + k;
    }

    private static Row row(long k) {
        Instant time = Instant.ofEpochMilli(1_700_000_000_000L + k * 1000);
        long nanos = k * 1000 + (k % 4 == 0 ? 7 : 0);
        return Row.of(
                k,
                k % 5,
                k % 5 == 0 ? null : word(k),
                new BigDecimal(k * 7).movePointLeft(2),
                k % 3 == 0 ? null : LocalDateTime.ofInstant(time, ZoneOffset.UTC).plusNanos(nanos),
                time,
                k % 4 == 0 ? null : new String[] {"a" + k, null});
    }
}
