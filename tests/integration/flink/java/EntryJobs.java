import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/** The jobs of `Jobs`, as a program that is submitted: `EntryJobs NAME`. */
public class EntryJobs {
    public static void main(String[] words) throws Exception {
        System.out.println("PLAN b");
        System.out.print("SAVEPOINT of the job"); // none of these is the answer
        if (words[0].equals("none")) {
            return;
        }
        while (words[0].equals("never")) {
            Files.writeString(Path.of(words[1]), String.valueOf(System.nanoTime()));
            Thread.sleep(20);
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
