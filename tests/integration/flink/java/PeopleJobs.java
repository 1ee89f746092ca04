import com.example.Profile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Jobs whose state is about people, as `tests/support/people.py` writes it: they tell what they were
 * restored with. The savepoint must have no state beside that of the operators that are named.
 *
 * <pre>
 * restore SAVEPOINT FILE PARALLELISM KEYS OPERATORS    keys and operators with commas between them
 * </pre>
 */
public class PeopleJobs {
    static final ConcurrentLinkedQueue<String> LINES = new ConcurrentLinkedQueue<>();

    public static void main(String[] arguments) throws Exception {
        Answers.to(words -> restore(
                words[1], Path.of(words[2]), Integer.parseInt(words[3]), words[4].split(","),
                words[5].split(",")));
    }

    private static String restore(
            String savepoint, Path file, int parallelism, String[] keys, String[] operators)
            throws Exception {
        Configuration conf = new Configuration();
        conf.setString("state.backend.type", "hashmap");
        conf.setString("restart-strategy.type", "none");
        conf.setString("execution.state-recovery.path", savepoint);
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, conf);
        env.setMaxParallelism(128);
        KeyedStream<String, String> names = env.fromData(Arrays.asList(keys), Types.STRING)
                .uid("restoring-source")
                .keyBy(name -> name, Types.STRING);
        for (String operator : operators) {
            names.process(function(operator), Types.STRING).uid(operator).name(operator)
                    .sinkTo(new DiscardingSink<>()).uid(operator + "-sink");
        }
        LINES.clear();
        Cluster.run(env);
        List<String> lines = new ArrayList<>(LINES);
        lines.sort(null);
        Files.write(file, lines, StandardCharsets.UTF_8);
        return Integer.toString(lines.size());
    }

    private static KeyedProcessFunction<String, String, String> function(String operator) {
        switch (operator) {
            case "users":
            case "clients":
                return new Users();
            case "places":
                return new Places();
            case "counter":
                return new Counter();
            default:
                throw new IllegalArgumentException("no operator is called " + operator);
        }
    }

    private static void tell(String key, Map<String, Object> states) {
        states.put("key", key);
        LINES.add(Json.of(states));
    }

    /** A profile, visits, friends and timers of each person. */
    static class Users extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Profile> profile;
        private transient ValueState<Long> visits;
        private transient MapState<String, Integer> friends;

        @Override
        public void open(OpenContext context) {
            profile = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("profile", Types.POJO(Profile.class)));
            visits = getRuntimeContext().getState(new ValueStateDescriptor<>("visits", Types.LONG));
            friends = getRuntimeContext()
                    .getMapState(new MapStateDescriptor<>("friends", Types.STRING, Types.INT));
        }

        @Override
        public void processElement(String name, Context context, Collector<String> out)
                throws Exception {
            Map<String, Object> states = new TreeMap<>();
            Profile of = profile.value();
            states.put("profile", of == null ? null : of.age + " " + of.city + " " + of.points);
            states.put("visits", visits.value());
            Map<String, Object> known = new TreeMap<>();
            for (Map.Entry<String, Integer> friend : friends.entries()) {
                known.put(friend.getKey(), friend.getValue());
            }
            states.put("friends", known);
            tell(name, states);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) {
            tell(context.getCurrentKey(), new TreeMap<>(Map.of("timer", timestamp)));
        }
    }

    /** Members of each place, and lists and rules of every subtask. */
    static class Places extends KeyedProcessFunction<String, String, String>
            implements CheckpointedFunction {
        private transient ListState<String> members;

        @Override
        public void open(OpenContext context) {
            members = getRuntimeContext()
                    .getListState(new ListStateDescriptor<>("members", Types.STRING));
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            OperatorStateStore store = context.getOperatorStateStore();
            BroadcastState<String, String> rules = store.getBroadcastState(
                    new MapStateDescriptor<>("rules", Types.STRING, Types.STRING));
            Map<String, Object> states = new TreeMap<>();
            for (String element : store.getListState(descriptor("pending")).get()) {
                tell("any subtask", new TreeMap<>(Map.of("pending", element)));
            }
            List<Object> shared = list(store.getUnionListState(descriptor("shared")));
            shared.sort(null); // Flink keeps the order of each subtask's elements, not the subtasks'
            states.put("shared", shared);
            Map<String, Object> held = new TreeMap<>();
            for (Map.Entry<String, String> rule : rules.immutableEntries()) {
                held.put(rule.getKey(), rule.getValue());
            }
            states.put("rules", held);
            tell("subtask " + getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), states);
        }

        private static ListStateDescriptor<String> descriptor(String name) {
            return new ListStateDescriptor<>(name, Types.STRING);
        }

        private static List<Object> list(ListState<String> state) throws Exception {
            List<Object> elements = new ArrayList<>();
            state.get().forEach(elements::add);
            return elements;
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {}

        @Override
        public void processElement(String name, Context context, Collector<String> out)
                throws Exception {
            tell(name, new TreeMap<>(Map.of("members", list(members))));
        }
    }

    /** How often each word came. */
    static class Counter extends KeyedProcessFunction<String, String, String> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String name, Context context, Collector<String> out)
                throws Exception {
            Map<String, Object> states = new TreeMap<>();
            states.put("count", count.value());
            tell(name, states);
        }
    }
}
