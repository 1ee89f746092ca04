import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.GlobalConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.PlanReference;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.api.internal.TableEnvironmentInternal;
import org.apache.flink.table.operations.BeginStatementSetOperation;
import org.apache.flink.table.operations.CompileAndExecutePlanOperation;
import org.apache.flink.table.operations.DescribeTableOperation;
import org.apache.flink.table.operations.EndStatementSetOperation;
import org.apache.flink.table.operations.ExplainOperation;
import org.apache.flink.table.operations.ModifyOperation;
import org.apache.flink.table.operations.Operation;
import org.apache.flink.table.operations.ShowOperation;
import org.apache.flink.table.operations.SinkModifyOperation;
import org.apache.flink.table.operations.StatementSetOperation;
import org.apache.flink.table.operations.UseOperation;
import org.apache.flink.table.operations.command.AddJarOperation;
import org.apache.flink.table.operations.command.ExecutePlanOperation;
import org.apache.flink.table.operations.command.ResetOperation;
import org.apache.flink.table.operations.command.SetOperation;
import org.apache.flink.table.operations.ddl.AlterOperation;
import org.apache.flink.table.operations.ddl.CompilePlanOperation;
import org.apache.flink.table.operations.ddl.CreateCatalogOperation;
import org.apache.flink.table.operations.ddl.CreateOperation;
import org.apache.flink.table.operations.ddl.DropOperation;

/**
 * The one job of a script of Flink SQL, over empty tables.
 *
 * <pre>
 * SqlScript compile REAL STATEMENTS PLAN     write the plan of the job
 * SqlScript plan REAL PLAN                   run a compiled plan
 * SqlScript compiled REAL STATEMENTS PLAN    write it, and run it
 * SqlScript run REAL STATEMENTS              run it without one
 * </pre>
 *
 * STATEMENTS is a file of the script's statements, each with the number of its line before it, with a null
 * character behind each. REAL says whether connectors on the class path are used themselves. Settings of
 * the Flink that FLINK_CONF_DIR names come first. Prints where the plan is, or what is wrong.
 */
public class SqlScript {
    private static final List<String> SETTINGS = List.of("table.", "pipeline.");
    private static final List<String> FILES = List.of("pipeline.jars", "pipeline.classpaths");
    private static final String PARALLELISM = "parallelism.default";
    private static final String MODULE = "empty";

    private final StreamTableEnvironment tables;
    private final TableEnvironmentInternal internal;
    private final boolean real;
    private final Map<String, String> beginning = new HashMap<>();
    private final List<ModifyOperation> job = new ArrayList<>();
    private boolean inSet;
    private boolean jobEnded;
    private boolean compiled;

    /** What is wrong with the script, in words of its own. */
    private static final class Refused extends RuntimeException {
        Refused(String message) {
            super(message);
        }

        @Override
        public String toString() {
            return getMessage();
        }
    }

    private SqlScript(boolean real) {
        this.real = real;
        Configuration conf = new Configuration();
        conf.setString(PARALLELISM, "1");
        tables = StreamTableEnvironment.create(StreamExecutionEnvironment.getExecutionEnvironment(conf));
        internal = (TableEnvironmentInternal) tables;
        tables.loadModule(MODULE, new EmptyTables(real));
        if (System.getenv("FLINK_CONF_DIR") != null) {
            beginning.putAll(GlobalConfiguration.loadConfiguration().toMap());
            beginning.forEach(this::set);
        }
    }

    public static void main(String[] words) throws Exception {
        SqlScript script = new SqlScript(Boolean.parseBoolean(words[1]));
        switch (words[0]) {
            case "compile":
                JobStates.answer("PLAN", () -> script.compile(words[2], words[3]));
                break;
            case "plan":
                script.run(words[2]);
                break;
            case "compiled":
                script.run(script.compile(words[2], words[3]));
                break;
            default:
                script.read(words[2]);
                script.internal.executeInternal(script.job);
        }
    }

    private String compile(String statements, String plan) throws Exception {
        read(statements);
        Files.writeString(Path.of(plan), internal.compilePlan(job).asJsonString());
        return plan;
    }

    private void run(String plan) {
        tables.loadPlan(PlanReference.fromFile(Path.of(plan))).execute();
    }

    private void read(String file) throws Exception {
        String[] words = Files.readString(Path.of(file), StandardCharsets.UTF_8).split("\0");
        for (int at = 0; at + 1 < words.length; at += 2) {
            try {
                for (Operation operation : internal.getParser().parse(words[at + 1])) {
                    take(operation);
                    keepEmpty();
                }
            } catch (Exception problem) {
                throw new Refused(
                        "line " + words[at] + ": " + reason(problem).replaceAll("\\s+", " "));
            }
        }
        tables.getConfig().set("table.plan.compile.catalog-objects", "ALL"); // with their connectors
        tables.getConfig().set("table.exec.resource.default-parallelism", "-1"); // that of this process
        if (job.isEmpty()) {
            throw new Refused("it has no INSERT");
        }
    }

    /** Sees that tables are empty whatever modules the script has chosen. */
    private void keepEmpty() {
        List<String> modules = new ArrayList<>(Arrays.asList(tables.listModules()));
        if (!modules.contains(MODULE)) {
            modules.add(MODULE);
            tables.useModules(modules.toArray(new String[0]));
        }
    }

    private static String reason(Throwable problem) {
        String found = "";
        for (Throwable at = problem; at != null && at != at.getCause(); at = at.getCause()) {
            boolean named = at.getMessage() == null || at instanceof ReflectiveOperationException
                    || at instanceof LinkageError;
            found = named ? String.valueOf(at) : at.getMessage();
        }
        return found;
    }

    /** Executes a statement that declares something, and keeps what the job inserts. */
    private void take(Operation operation) {
        if (operation instanceof CompilePlanOperation) {
            take(((CompilePlanOperation) operation).getOperation());
            compiled = true;
        } else if (operation instanceof CompileAndExecutePlanOperation) {
            take(((CompileAndExecutePlanOperation) operation).getOperation());
        } else if (operation instanceof StatementSetOperation) {
            insert(((StatementSetOperation) operation).getOperations());
        } else if (operation instanceof BeginStatementSetOperation) {
            inSet = true;
        } else if (operation instanceof EndStatementSetOperation) {
            inSet = false;
            jobEnded = true;
        } else if (operation instanceof ModifyOperation) {
            insert(List.of((ModifyOperation) operation));
        } else if (operation instanceof SetOperation) {
            SetOperation setting = (SetOperation) operation;
            set(setting.getKey().orElse(""), setting.getValue().orElse(""));
        } else if (operation instanceof ResetOperation) {
            reset((ResetOperation) operation);
        } else if (operation instanceof ExecutePlanOperation && compiled) {
            return; // of the plan that the script compiled
        } else if (operation instanceof CreateCatalogOperation && !real
                && !"generic_in_memory".equals(
                        ((CreateCatalogOperation) operation).getProperties().get("type"))) {
            throw new Refused("a catalog is of its own system: its JAR is needed");
        } else if (operation instanceof CreateOperation || operation instanceof AlterOperation
                || operation instanceof DropOperation || operation instanceof UseOperation) {
            internal.executeInternal(operation);
        } else if (!(operation instanceof ShowOperation || operation instanceof DescribeTableOperation
                || operation instanceof ExplainOperation || operation instanceof AddJarOperation)) {
            throw new Refused("this is no part of a job with INSERT: "
                    + operation.getClass().getSimpleName().replace("Operation", ""));
        }
    }

    private void insert(List<ModifyOperation> inserts) {
        if (inserts.stream().anyMatch(each -> !(each instanceof SinkModifyOperation))) {
            throw new Refused("only INSERT INTO a table is compiled to a plan");
        }
        if (jobEnded) {
            throw new Refused("a second job: put all INSERTs in one STATEMENT SET");
        }
        job.addAll(inserts);
        jobEnded = !inSet;
    }

    private void set(String key, String value) {
        if (key.equals("execution.runtime-mode") && !value.equalsIgnoreCase("streaming")) {
            throw new Refused("only streaming jobs have state");
        }
        if (counts(key)) {
            tables.getConfig().set(key, value);
        }
    }

    /** Whether a setting is one of the plan or of types: others are of clusters, and of this process. */
    private static boolean counts(String key) {
        return SETTINGS.stream().anyMatch(key::startsWith) && !FILES.contains(key);
    }

    /** Has settings again as they were in the beginning: those of Flink's own file, or none. */
    private void reset(ResetOperation operation) {
        Configuration settings = tables.getConfig().getConfiguration();
        for (String key : new ArrayList<>(settings.keySet())) {
            if (operation.getKey().map(key::equals).orElse(counts(key))) {
                settings.removeKey(key);
            }
        }
        beginning.forEach((key, value) -> {
            if (operation.getKey().map(key::equals).orElse(true)) {
                set(key, value);
            }
        });
    }
}
