import java.io.File;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.JobStatus;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.graph.StreamGraph;
import org.apache.flink.streaming.api.graph.StreamNode;

/**
 * Takes a savepoint of a job that has read nothing: its states are registered, with their types.
 *
 * <pre>
 * JobStates JAR ENTRY_CLASS DIRECTORY SECONDS [ARGUMENT ...]
 * </pre>
 *
 * The job's `main` is run. What it submits runs in this process, with sources that are silent and sinks
 * that discard, as far as they are of Flink's own interfaces. Prints where the savepoint is.
 */
public class JobStates extends StreamExecutionEnvironment {
    private static StreamGraph submitted;

    JobStates(Configuration conf) {
        super(conf);
    }

    /** Ends the job's `main`, which has submitted what it had to. */
    static final class Submitted extends Error {
        Submitted() {
            super(null, null, false, false);
        }
    }

    @Override
    public JobClient executeAsync(StreamGraph graph) {
        if (submitted == null) {
            submitted = graph;
        }
        throw new Submitted();
    }

    public static void main(String[] words) {
        answer("SAVEPOINT", () -> savepoint(words));
    }

    /**
     * Prints an answer, or the cause of what went wrong, and ends the process.
     *
     * What a job prints itself is no answer. Who does not wait for one any more, since it was killed, ends
     * this process too.
     */
    static void answer(String name, Callable<String> work) {
        PrintStream answers = System.out;
        System.setOut(System.err);
        ProcessHandle.current().parent().ifPresent(
                asker -> asker.onExit().thenRun(() -> Runtime.getRuntime().halt(1)));
        int code = 1;
        try {
            answers.println(name + " " + work.call());
            code = 0;
        } catch (Throwable problem) {
            Throwable cause = problem;
            while (cause.getCause() != null && cause.getCause() != cause) {
                cause = cause.getCause();
            }
            answers.println("PROBLEM " + String.valueOf(cause).replaceAll("\\s+", " "));
            problem.printStackTrace();
        }
        answers.flush();
        Runtime.getRuntime().halt(code);
    }

    private static String savepoint(String[] words) throws Exception {
        URL[] jar = {new File(words[0]).toURI().toURL()};
        ClassLoader loader = new URLClassLoader(jar, JobStates.class.getClassLoader());
        Thread.currentThread().setContextClassLoader(loader);
        initializeContextEnvironment(JobStates::new);
        Method main = Class.forName(words[1], true, loader).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) Arrays.copyOfRange(words, 4, words.length));
        } catch (InvocationTargetException problem) {
            if (submitted == null) {
                throw problem;
            }
        }
        if (submitted == null) {
            throw new IllegalStateException("its main submitted no streaming job");
        }
        silence(submitted);
        return run(submitted, jar, words[2], Long.parseLong(words[3]));
    }

    private static String run(StreamGraph graph, URL[] jar, String directory, long seconds)
            throws Exception {
        graph.getCheckpointConfig().disableCheckpointing();
        JobGraph job = graph.getJobGraph();
        job.setClasspaths(List.of(jar));
        Configuration conf = new Configuration();
        conf.setString("rest.port", "0");
        conf.setString("rest.bind-port", "0");
        conf.setString("taskmanager.memory.network.min", "64m");
        conf.setString("taskmanager.memory.network.max", "64m");
        conf.setString("taskmanager.memory.segment-size", "4kb");
        conf.setString("taskmanager.memory.managed.size", "128m");
        conf.setString("restart-strategy.type", "none");
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(conf).setNumTaskManagers(1)
                .setNumSlotsPerTaskManager(job.getMaximumParallelism()).build());
        cluster.start();
        JobID id = cluster.submitJob(job).get().getJobID();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (true) {
            JobStatus status = cluster.getJobStatus(id).get();
            if (status.isGloballyTerminalState()) {
                cluster.requestJobResult(id).get().toJobExecutionResult(JobStates.class.getClassLoader());
                throw new IllegalStateException("the job is " + status);
            }
            try {
                return cluster.triggerSavepoint(id, directory, false, SavepointFormatType.CANONICAL)
                        .get(seconds, TimeUnit.SECONDS);
            } catch (ExecutionException notYet) { // tasks are starting
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
                Thread.sleep(100);
            }
        }
    }

    // ------------------------------------------------------------------ sources and sinks

    /** Puts silent sources, and sinks that discard, in the place of those that the job has. */
    private static void silence(StreamGraph graph) throws Exception {
        for (StreamNode node : graph.getStreamNodes()) {
            Object factory = node.getOperatorFactory();
            if (factory == null) {
                continue;
            }
            String name = factory.getClass().getSimpleName();
            if (name.equals("SourceOperatorFactory")) {
                set(factory, "source", new Silent<>());
            } else if (name.equals("SinkWriterOperatorFactory")) {
                set(factory, "sink", new DiscardingSink<Object>());
            }
        }
    }

    private static void set(Object target, String name, Object value) throws Exception {
        for (Class<?> of = target.getClass(); of != null; of = of.getSuperclass()) {
            for (Field field : of.getDeclaredFields()) {
                if (field.getName().equals(name)) {
                    field.setAccessible(true);
                    field.set(target, value);
                    return;
                }
            }
        }
        throw new NoSuchFieldException(target.getClass() + "." + name);
    }
}
