import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The jobs of `Jobs`, as a program that is submitted: `EntryJobs NAME`. */
public class EntryJobs {
    public static void main(String[] words) throws Exception {
        if (words[0].equals("none")) {
            return;
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.setParallelism(2);
        env.setMaxParallelism(128);
        Jobs.build(env, words[0], 20, false);
        if (words[0].equals("kinds") && words.length > 1) {
            throw new IllegalArgumentException("no such shop: " + words[1]);
        }
        env.execute(words[0]);
    }
}
