import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.jobgraph.SavepointRestoreSettings;
import org.apache.flink.runtime.minicluster.MiniCluster;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;
import scala.Option;
import scala.Tuple2;

/**
 * A job whose types are those of `FlinkxTypes.scala`: `write DIRECTORY` writes a savepoint, `read
 * SAVEPOINT BACKEND` says what is in it.
 */
public class FlinkxStates {
    private static final int KEYS = 12;
    private static final ConcurrentSkipListSet<String> LINES = new ConcurrentSkipListSet<>();
    private static boolean reading;

    public static void main(String[] args) throws Exception {
        Answers.to(words -> {
            reading = words[0].equals("read");
            return reading ? read(words[1], words[2]) : HeldSource.savepoint(job(), words[1]);
        });
    }

    private static StreamExecutionEnvironment job() {
        StreamExecutionEnvironment env = HeldSource.environment();
        NumberSequenceSource none = new NumberSequenceSource(0, 0);
        HeldSource.stream(env, none.getSplitSerializer(), none.getEnumeratorCheckpointSerializer(), List.of(), List.of())
                .flatMap((FlatMapFunction<Long, Integer>) (subtask, out) -> {
                    for (int n = subtask.intValue(); n < KEYS; n += 2) {
                        out.collect(n);
                    }
                }).returns(Types.INT).uid("numbers")
                .keyBy(n -> FlinkxTypes.key(n), FlinkxTypes.keyInfo())
                .process(new Keeper()).uid("customers")
                .sinkTo(new DiscardingSink<>()).uid("nowhere");
        return env;
    }

    private static String read(String savepoint, String backend) throws Exception {
        LINES.clear();
        StreamExecutionEnvironment env = job();
        MiniCluster cluster = Cluster.of(2);
        Configuration conf = (Configuration) env.getConfiguration();
        conf.setString("state.backend.type", backend);
        env.configure(conf);
        SavepointRestoreSettings.toConfiguration(SavepointRestoreSettings.forPath(savepoint), conf);
        JobID job = Cluster.submit(cluster, env);
        while (LINES.size() < KEYS) {
            if (cluster.getJobStatus(job).get().isGloballyTerminalState()) {
                Cluster.result(cluster, job);
            }
            Thread.sleep(100);
        }
        cluster.cancelJob(job).get();
        cluster.requestJobResult(job).get();
        return String.join("\t", new TreeSet<>(LINES));
    }

    private static class Keeper extends KeyedProcessFunction<Tuple2<String, Object>, Integer, Integer> {
        private transient ValueState<Customer> customer;
        private transient ListState<Event> events;
        private transient MapState<String, Option<scala.math.BigDecimal>> amounts;

        @Override
        public void open(OpenContext context) {
            customer = getRuntimeContext().getState(new ValueStateDescriptor<>("customer", FlinkxTypes.customerInfo()));
            events = getRuntimeContext().getListState(new ListStateDescriptor<>("events", FlinkxTypes.eventInfo()));
            amounts = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("amounts", Types.STRING, FlinkxTypes.amountInfo()));
        }

        @Override
        public void processElement(Integer n, Context context, Collector<Integer> out) throws Exception {
            if (reading) {
                List<Event> held = new ArrayList<>();
                events.get().forEach(held::add);
                LINES.add(n + " " + customer.value() + " " + held + " " + amounts.get("x") + " " + amounts.contains("y"));
                return;
            }
            customer.update(FlinkxTypes.customer(n));
            for (int i = 0; i <= n % 3; i++) {
                events.add(FlinkxTypes.event(n + i));
            }
            amounts.put("x", FlinkxTypes.amount(n));
        }
    }
}
