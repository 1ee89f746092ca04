import java.util.HashMap;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.hashmap.HashMapStateBackend;
import org.apache.flink.state.api.OperatorIdentifier;
import org.apache.flink.state.api.OperatorTransformation;
import org.apache.flink.state.api.SavepointWriter;
import org.apache.flink.state.api.functions.KeyedStateBootstrapFunction;
import org.apache.flink.state.rocksdb.EmbeddedRocksDBStateBackend;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

/**
 * A savepoint of `ValueState<Long>` by `Long` by Flink's State Processor API, both cores. It reads
 * nothing: numbers are counted, which is to its favour.
 *
 * <pre>
 * write    backend= entries= to=
 * </pre>
 *
 * Prints the seconds that the job took.
 */
public class BootstrapBench {
    public static void main(String[] words) throws Exception {
        Map<String, String> args = new HashMap<>();
        for (int i = 1; i < words.length; i++) {
            int at = words[i].indexOf('=');
            args.put(words[i].substring(0, at), words[i].substring(at + 1));
        }
        Configuration conf = new Configuration();
        conf.setString("taskmanager.memory.managed.size", "512m");
        conf.setString("rest.port", "0");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(2, conf);
        env.setRuntimeMode(RuntimeExecutionMode.BATCH);
        StateBackend backend = args.get("backend").equals("rocksdb")
                ? new EmbeddedRocksDBStateBackend() : new HashMapStateBackend();
        SavepointWriter
                .newSavepoint(env, backend, 128)
                .withOperator(OperatorIdentifier.forUid("counter"),
                        OperatorTransformation
                                .bootstrapWith(env.fromSequence(0, Long.parseLong(args.get("entries")) - 1))
                                .keyBy(number -> number, Types.LONG)
                                .transform(new Bootstrapper()))
                .write(args.get("to"));
        long start = System.nanoTime();
        env.execute(words[0]);
        System.out.println((System.nanoTime() - start) / 1e9);
        System.exit(0);
    }

    static class Bootstrapper extends KeyedStateBootstrapFunction<Long, Long> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(Long number, Context context) throws Exception {
            count.update(number * 7);
        }
    }
}
