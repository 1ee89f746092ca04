import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.ZoneId;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.annotation.ArgumentHint;
import org.apache.flink.table.annotation.ArgumentTrait;
import org.apache.flink.table.annotation.StateHint;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.api.PlanReference;
import org.apache.flink.table.api.Schema;
import org.apache.flink.table.api.StatementSet;
import org.apache.flink.table.api.TableDescriptor;
import org.apache.flink.table.api.bridge.java.StreamStatementSet;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.dataview.ListView;
import org.apache.flink.table.api.dataview.MapView;
import org.apache.flink.table.functions.ProcessTableFunction;
import org.apache.flink.types.Row;

/**
 * A job of what Flink SQL has new since 2.1 that keeps state: a delta join and a lookup join in the order of
 * keys, both with records that wait, and a process table function.
 *
 * <pre>
 * SqlOperators BACKEND DIRECTORY                where to take the savepoint
 * SqlOperators BACKEND DIRECTORY SAVEPOINT      the same of a job that is restored first
 * </pre>
 *
 * With `-Danswers=true` lookups are answered, and what is joined is printed. Prints where the savepoint is.
 *
 * With `-Ddelta=PLAN_FILE` the job is the delta join alone, by its compiled plan, which is compiled if the file
 * is not there; with `-Daside=true` behind another query. With `-Dcompile=true` nothing is run.
 */
public class SqlOperators {
    private static final String DELTA = System.getProperty("delta");
    private static final String DELTA_JOIN = "INSERT INTO indexed.`default`.joined "
            + "SELECT * FROM indexed.`default`.l AS a JOIN indexed.`default`.r AS b ON a.g = b.g";

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
        StreamExecutionEnvironment env = SqlQueries.environment(words);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().setLocalTimeZone(ZoneId.of("UTC"));
        tables.getConfig().set("table.optimizer.delta-join.strategy", "AUTO");
        tables.getConfig().set("table.exec.async-lookup.key-ordered-enabled", "true");
        tables.getConfig().set("table.exec.async-lookup.output-mode", "ALLOW_UNORDERED");
        tables.getConfig().set("table.exec.async-lookup.timeout", "1 h");
        tables.getConfig().set("table.exec.sink.upsert-materialize-strategy.type", "VALUE");
        tables.registerCatalog("indexed", new IndexedTables("indexed"));
        indexed(tables, "l");
        indexed(tables, "r");
        SqlQueries.table(tables, env, "o");
        tables.createTemporarySystemFunction("visits", Visits.class);
        if (DELTA != null) {
            return delta(tables, words);
        }
        StreamStatementSet statements = tables.createStatementSet();
        joined(tables);
        statements.addInsertSql(DELTA_JOIN);
        tables.executeSql("CREATE TEMPORARY TABLE visited (g BIGINT, said STRING, happened TIMESTAMP_LTZ(3)) "
                + "WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO visited SELECT * FROM visits("
                + "input => TABLE o PARTITION BY g, on_time => DESCRIPTOR(ts), uid => 'visits')");
        tables.executeSql("CREATE TEMPORARY TABLE found (g BIGINT, id BIGINT, name STRING) WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO found SELECT a.g, a.id, b.name FROM "
                + "(SELECT *, PROCTIME() AS pt FROM (SELECT g, MAX(id) AS id FROM o GROUP BY g)) AS a "
                + "JOIN indexed.`default`.r FOR SYSTEM_TIME AS OF a.pt AS b ON a.g = b.g");
        tables.executeSql("CREATE TEMPORARY TABLE varied (v VARIANT, id BIGINT) WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO varied SELECT a.v, b.id FROM (SELECT g, "
                + "PARSE_JSON('{\"id\": ' || CAST(id AS STRING) || '}') AS v FROM o WHERE id < 3) AS a "
                + "JOIN o AS b ON a.g = b.g");
        statements.addInsertSql("INSERT INTO visited SELECT * FROM visits("
                + "input => TABLE o PARTITION BY g ORDER BY ts, on_time => DESCRIPTOR(ts), uid => 'sorted')");
        tables.executeSql("CREATE TEMPORARY TABLE summed (id BIGINT, s DECIMAL(38, 2)) WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO summed SELECT id, SUM(price) OVER (PARTITION BY g ORDER BY name) FROM o");
        tables.executeSql("CREATE TEMPORARY TABLE keyed (g BIGINT, s DECIMAL(38, 2), PRIMARY KEY (g) NOT ENFORCED) "
                + "WITH ('connector' = 'blackhole')");
        statements.addInsertSql("INSERT INTO keyed SELECT x.m, x.s FROM (SELECT g, MAX(g) AS m, SUM(price) AS s FROM o "
                + "GROUP BY g) x ON CONFLICT DO ERROR");
        tables.executeSql("CREATE TEMPORARY TABLE latest LIKE keyed");
        statements.addInsertSql("INSERT INTO latest SELECT x.m, x.s FROM (SELECT g, MAX(g) AS m, SUM(price) AS s FROM o "
                + "GROUP BY g) x ON CONFLICT DO DEDUPLICATE");
        statements.addInsertSql("INSERT INTO summed SELECT id, SUM(price) OVER (PARTITION BY g ORDER BY ts) FROM o");
        statements.addInsertSql("INSERT INTO summed SELECT id, price FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY g "
                + "ORDER BY ts) AS rn FROM o) WHERE rn = 1");
        statements.attachAsDataStream();
        JobClient job = env.executeAsync("operators");
        return SqlQueries.savepointOf(job, words, SqlQueries.SEEN, SqlQueries.ROWS + 2 * IndexedTables.ROWS);
    }

    private static void joined(StreamTableEnvironment tables) {
        tables.executeSql("CREATE TABLE indexed.`default`.joined (id BIGINT, g BIGINT, name STRING, price DECIMAL(10, 2), "
                + "id2 BIGINT, g2 BIGINT, name2 STRING, price2 DECIMAL(10, 2), PRIMARY KEY (id, g, id2, g2) NOT ENFORCED) "
                + "WITH ('connector' = 'indexed')");
    }

    private static String delta(StreamTableEnvironment tables, String[] words) throws Exception {
        Path file = Path.of(DELTA);
        joined(tables);
        indexed(tables, "m");
        tables.executeSql("CREATE TABLE counted (g BIGINT, c BIGINT) WITH ('connector' = 'blackhole')");
        if (!Files.exists(file)) {
            StatementSet statements = tables.createStatementSet();
            if (Boolean.getBoolean("aside")) {
                statements.addInsertSql("INSERT INTO counted SELECT g, COUNT(*) FROM indexed.`default`.m GROUP BY g");
            }
            statements.addInsertSql(DELTA_JOIN);
            Files.writeString(file, statements.compilePlan().asJsonString());
        }
        if (Boolean.getBoolean("compile")) {
            return DELTA;
        }
        JobClient job = tables.loadPlan(PlanReference.fromFile(file)).execute().getJobClient().get();
        return SqlQueries.savepointOf(job, words, SqlQueries.SEEN, 2 * IndexedTables.ROWS);
    }

    private static void indexed(StreamTableEnvironment tables, String name) {
        Schema schema = Schema.newBuilder()
                .column("id", DataTypes.BIGINT().notNull())
                .column("g", DataTypes.BIGINT().notNull())
                .column("name", DataTypes.STRING())
                .column("price", DataTypes.DECIMAL(10, 2))
                .primaryKey("id", "g")
                .index("g")
                .build();
        tables.createTable("indexed.`default`." + name, TableDescriptor.forConnector("indexed").schema(schema).build());
    }

    /** All forms of state: a value, a list, a map, and timers with a name and without. */
    public static class Visits extends ProcessTableFunction<String> {
        public static class Seen {
            public long times;
            public String last;
        }

        public void eval(
                Context context,
                @StateHint(name = "seen") Seen seen,
                @StateHint(name = "ids") ListView<Long> ids,
                @StateHint(name = "names") MapView<String, Integer> names,
                @ArgumentHint(name = "input", value = {ArgumentTrait.SET_SEMANTIC_TABLE, ArgumentTrait.REQUIRE_ON_TIME}) Row input)
                throws Exception {
            Long id = input.getFieldAs("id");
            String name = input.getFieldAs("name");
            seen.times++;
            seen.last = name;
            ids.add(id);
            if (name != null) {
                names.put(name, Math.toIntExact(id));
            }
            TimeContext<Instant> time = context.timeContext(Instant.class);
            time.registerOnTime("after-a-day", time.time().plusSeconds(86_400));
            time.registerOnTime(time.time().plusSeconds(3_600));
            collect(seen.times + " " + seen.last);
        }

        public void onTimer(OnTimerContext context, Seen seen, ListView<Long> ids, MapView<String, Integer> names) {
            collect(context.currentTimer());
        }
    }
}
