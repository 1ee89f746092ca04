import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.JobID;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.JobGraph;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.runtime.minicluster.MiniClusterConfiguration;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** Clusters that the jobs of this process share: one starts and ends in seconds, most jobs in less. */
final class Cluster {
    private static final int FEW_SLOTS = 31;
    private static final int MANY_SLOTS = 128;
    /** By their slots. */
    private static final Map<Integer, MiniCluster> RUNNING = new HashMap<>();

    private Cluster() {}

    /** The slots and memory of a cluster for jobs of that parallelism. */
    static void size(Configuration conf, int parallelism) {
        conf.setString("rest.port", "0");
        conf.setString("taskmanager.numberOfTaskSlots", Integer.toString(parallelism));
        // an all-to-all exchange wants two buffers a channel, parallelism squared: small ones do
        String network = Math.max(64, 4 * parallelism) + "m";
        conf.setString("taskmanager.memory.segment-size", parallelism <= FEW_SLOTS ? "32kb" : "4kb");
        conf.setString("taskmanager.memory.network.min", network);
        conf.setString("taskmanager.memory.network.max", network);
        conf.setString("taskmanager.memory.managed.size", System.getProperty("managed", "256m"));
        // on a busy machine a hundred tasks take longer to start than a consumer waits by default
        conf.setString("taskmanager.network.request-backoff.max", "60000");
        conf.setString("taskmanager.network.partition-request-timeout", "60 s");
    }

    /** A cluster that runs, with slots for a job of that parallelism. */
    static MiniCluster of(int parallelism) throws Exception {
        int slots = parallelism <= FEW_SLOTS ? FEW_SLOTS : Math.max(parallelism, MANY_SLOTS);
        MiniCluster running = RUNNING.get(slots);
        if (running != null && running.isRunning()) {
            return running;
        }
        Configuration conf = new Configuration();
        size(conf, slots);
        MiniCluster cluster = new MiniCluster(new MiniClusterConfiguration.Builder()
                .setConfiguration(conf).setNumTaskManagers(1).setNumSlotsPerTaskManager(slots).build());
        cluster.start();
        RUNNING.put(slots, cluster);
        return cluster;
    }

    /** Begin a job, from the savepoint that its configuration names. */
    static JobID submit(MiniCluster cluster, StreamExecutionEnvironment env) throws Exception {
        SavepointRestoreSettings from =
                SavepointRestoreSettings.fromConfiguration(env.getConfiguration());
        JobGraph graph = env.getStreamGraph().getJobGraph();
        graph.setSavepointRestoreSettings(from);
        return cluster.submitJob(graph).get().getJobID();
    }

    /** Wait for the end of a job, which is an exception if it failed. */
    static Object result(MiniCluster cluster, JobID job) throws Exception {
        return cluster.requestJobResult(job).get()
                .toJobExecutionResult(Cluster.class.getClassLoader());
    }

    /** Run a job to its end. */
    static void run(StreamExecutionEnvironment env) throws Exception {
        MiniCluster cluster = of(env.getParallelism());
        result(cluster, submit(cluster, env));
    }
}
