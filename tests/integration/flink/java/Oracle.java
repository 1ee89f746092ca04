import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.checkpoint.CheckpointException;
import org.apache.flink.runtime.checkpoint.CheckpointFailureReason;
import org.apache.flink.runtime.dispatcher.UnavailableDispatcherOperationException;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * Real Flink, asked line by line: each line of standard input is one command with key=value
 * arguments, each answer is one line that begins with "ok" or "error".
 *
 * <pre>
 * generate    case= backend= format= compression= parallelism= max= keys= inline= to=
 * checkpoints case= backend= compression= parallelism= max= keys= inline= to= generations=
 *             savepoints= and options of Flink's, by their names
 * restore     case= backend= savepoint= parallelism= max= keys= out= [suffix=] [ttl=] [strict=true]
 * </pre>
 */
public class Oracle {
    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        answers.println("ok ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Map<String, String> args = new HashMap<>();
            for (int i = 1; i < words.length; i++) {
                int at = words[i].indexOf('=');
                args.put(words[i].substring(0, at), words[i].substring(at + 1));
            }
            try {
                answers.println("ok " + run(words[0], args));
            } catch (Throwable problem) {
                answers.println("error " + describe(problem));
            }
        }
        System.exit(0);
    }

    private static String run(String command, Map<String, String> args) throws Exception {
        Jobs.suffix = args.getOrDefault("suffix", "");
        Jobs.ttl = args.getOrDefault("ttl", "");
        switch (command) {
            case "generate":
                return generate(args);
            case "checkpoints":
                return checkpoints(args);
            case "restore":
                return restore(args);
            default:
                throw new IllegalArgumentException("unknown command " + command);
        }
    }

    /** Run a job until it has seen every key, take a savepoint, and say where it is. */
    private static String generate(Map<String, String> args) throws Exception {
        Configuration conf = writing(args);
        StreamExecutionEnvironment env = environment(conf, args);
        Jobs.SEEN.set(0);
        long keys = Long.parseLong(args.get("keys"));
        long expected = Jobs.build(env, args.get("case"), keys, false);
        MiniCluster cluster = Cluster.of(env.getParallelism());
        JobID job = Cluster.submit(cluster, env);
        try {
            waitFor(() -> cluster.getJobStatus(job).get(), () -> Cluster.result(cluster, job), expected);
            SavepointFormatType format = SavepointFormatType.valueOf(args.get("format").toUpperCase());
            return patiently(() -> cluster.triggerSavepoint(job, args.get("to"), false, format));
        } finally {
            if (!cluster.getJobStatus(job).get().isGloballyTerminalState()) {
                cluster.cancelJob(job).get(1, TimeUnit.MINUTES);
                cluster.requestJobResult(job).get(1, TimeUnit.MINUTES);
            }
        }
    }

    /** Run a job that takes checkpoints, which are all kept, and say where they are. */
    private static String checkpoints(Map<String, String> args) throws Exception {
        Configuration conf = writing(args);
        conf.setString("execution.checkpointing.dir", args.get("to"));
        conf.setString("execution.checkpointing.interval", "365 d");  // never but when asked
        conf.setString("execution.checkpointing.incremental", "true");
        conf.setString("execution.checkpointing.num-retained", "100");
        conf.setString(
                "execution.checkpointing.externalized-checkpoint-retention",
                "RETAIN_ON_CANCELLATION");
        args.forEach((name, value) -> {
            if (name.contains(".")) {
                conf.setString(name, value);
            }
        });
        return ChainJobs.checkpoints(conf, environment(conf, args), args);
    }

    /** Take a snapshot; a subtask that got no key may have yet to start, and Flink then declines. */
    static String patiently(Callable<CompletableFuture<String>> snapshot) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        while (true) {
            try {
                return snapshot.call().get(2, TimeUnit.MINUTES);
            } catch (ExecutionException problem) {
                if (!tooEarly(problem) || System.nanoTime() > deadline) {
                    throw problem;
                }
                Thread.sleep(20);
            }
        }
    }

    private static boolean tooEarly(Throwable problem) {
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            if (cause instanceof UnavailableDispatcherOperationException
                    || cause instanceof CheckpointException
                    && ((CheckpointException) cause).getCheckpointFailureReason()
                            == CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING) {
                return true;
            }
        }
        return false;
    }

    static void waitFor(Callable<JobStatus> job, Callable<?> result, long expected)
            throws Exception {
        long deadline = System.nanoTime() + TimeUnit.MINUTES.toNanos(2);
        while (Jobs.SEEN.get() < expected) {
            JobStatus status = job.call();
            if (status.isGloballyTerminalState()) {
                result.call();
                throw new IllegalStateException("the job ended: " + status);
            }
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("only " + Jobs.SEEN.get() + " records in 2 minutes");
            }
            Thread.sleep(20);
        }
    }

    /** Restore a savepoint, and write what every key holds, sorted, to a file. */
    private static String restore(Map<String, String> args) throws Exception {
        Configuration conf = configuration(args);
        conf.setString("execution.state-recovery.path", args.get("savepoint"));
        conf.setString(
                "execution.state-recovery.ignore-unclaimed-state",
                args.getOrDefault("strict", "false").equals("true") ? "false" : "true");
        StreamExecutionEnvironment env = environment(conf, args);
        Jobs.LINES.clear();
        Jobs.build(env, args.get("case"), Long.parseLong(args.get("keys")), true);
        Cluster.run(env);
        List<String> lines = new ArrayList<>(Jobs.LINES);
        lines.sort(null);
        Files.write(Path.of(args.get("out")), lines, StandardCharsets.UTF_8);
        return Integer.toString(lines.size());
    }

    /** For jobs that write: what their snapshots look like. */
    private static Configuration writing(Map<String, String> args) {
        Configuration conf = configuration(args);
        conf.setString("execution.checkpointing.data-inline-threshold", args.getOrDefault("inline", "0"));
        conf.setString("execution.checkpointing.snapshot-compression", args.get("compression"));
        return conf;
    }

    private static Configuration configuration(Map<String, String> args) {
        Configuration conf = new Configuration();
        conf.setString("state.backend.type", args.get("backend"));
        conf.setString("restart-strategy.type", "none");
        if (args.get("case").equals("kryo")) {
            conf.setString("pipeline.serialization-config", KryoJobs.REGISTERED);
        }
        Cluster.size(conf, Integer.parseInt(args.get("parallelism")));
        return conf;
    }

    private static StreamExecutionEnvironment environment(
            Configuration conf, Map<String, String> args) {
        int parallelism = Integer.parseInt(args.get("parallelism"));
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        env.setMaxParallelism(Integer.parseInt(args.get("max")));
        return env;
    }

    private static String describe(Throwable problem) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = problem; cause != null; cause = cause.getCause()) {
            text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage()).append(" | ");
        }
        return text.toString().replace('\n', ' ');
    }
}
