import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.core.fs.FSDataInputStream;
import org.apache.flink.core.memory.DataInputViewStreamWrapper;
import org.apache.flink.runtime.checkpoint.OperatorState;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.runtime.state.OperatorBackendSerializationProxy;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot;
import org.apache.flink.runtime.state.metainfo.StateMetaInfoSnapshot.CommonSerializerKeys;
import org.apache.flink.state.api.runtime.SavepointLoader;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/**
 * Operator state whose types evolve: lists and broadcast states of what {@link EvolvingJobs} keeps by
 * key. A line for each subtask that restores it. A state may be asked for in another form than it was
 * written: `addresses:union`.
 */
class EvolvingOperators {
    private static final TypeInformation<Shop.Address> ADDRESS = TypeInformation.of(Shop.Address.class);
    private static final TypeInformation<Shop.Label> LABEL = TypeInformation.of(Shop.Label.class);
    private static final Map<String, String> FORMS = new LinkedHashMap<>();

    static {
        FORMS.put("addresses", "split");
        FORMS.put("labels", "union");
        FORMS.put("depots", "broadcast");
        FORMS.put("places", "broadcast");
    }

    static String write(String directory) throws Exception {
        StreamExecutionEnvironment env = EvolvingJobs.environment("hashmap", null);
        build(EvolvingJobs.endless(env), new Holders("-", false));
        return EvolvingJobs.savepoint(env, directory);
    }

    static String restore(String savepoint, String states, Path file) throws Exception {
        StreamExecutionEnvironment env = EvolvingJobs.environment("hashmap", savepoint);
        build(EvolvingJobs.ending(env), new Holders(states, true));
        return EvolvingJobs.lines(env, file);
    }

    private static void build(DataStream<Long> numbers, Holders holders) {
        numbers.rebalance().map(holders).returns(Types.LONG).uid("holders").name("holders")
                .sinkTo(new DiscardingSink<>()).uid("sink");
    }

    /** What Flink would do with the serializers of each state, were it restored with these classes. */
    static String verdicts(String savepoint, Path file) throws Exception {
        SerializerConfigImpl config = new SerializerConfigImpl();
        EvolvingJobs.register(config);
        Map<String, Object> found = new TreeMap<>();
        for (OperatorState operator : SavepointLoader.loadSavepointMetadata(savepoint).getOperatorStates()) {
            for (OperatorSubtaskState subtask : operator.getStates()) {
                for (OperatorStateHandle handle : subtask.getManagedOperatorState()) {
                    for (StateMetaInfoSnapshot state : states(handle)) {
                        if (FORMS.containsKey(state.getName())) {
                            judge(state, config, found);
                        }
                    }
                }
            }
        }
        Files.writeString(file, Json.of(found) + "\n");
        return Integer.toString(found.size());
    }

    private static void judge(
            StateMetaInfoSnapshot state, SerializerConfigImpl config, Map<String, Object> found) {
        String name = state.getName();
        boolean places = name.equals("places");
        TypeInformation<?> value = places ? Types.STRING : name.equals("labels") ? LABEL : ADDRESS;
        found.put(name, EvolvingJobs.verdict(
                value.createSerializer(config).snapshotConfiguration(),
                state.getTypeSerializerSnapshot(CommonSerializerKeys.VALUE_SERIALIZER)));
        if (FORMS.get(name).equals("broadcast")) {
            TypeInformation<?> key = places ? ADDRESS : Types.STRING;
            found.put(name + " key", EvolvingJobs.verdict(
                    key.createSerializer(config).snapshotConfiguration(),
                    state.getTypeSerializerSnapshot(CommonSerializerKeys.KEY_SERIALIZER)));
        }
    }

    private static List<StateMetaInfoSnapshot> states(OperatorStateHandle handle) throws Exception {
        try (FSDataInputStream stream = handle.openInputStream()) {
            OperatorBackendSerializationProxy proxy = new OperatorBackendSerializationProxy(
                    EvolvingOperators.class.getClassLoader());
            proxy.read(new DataInputViewStreamWrapper(stream));
            List<StateMetaInfoSnapshot> found =
                    new ArrayList<>(proxy.getOperatorStateMetaInfoSnapshots());
            found.addAll(proxy.getBroadcastStateMetaInfoSnapshots());
            return found;
        }
    }

    static class Holders extends RichMapFunction<Long, Long> implements CheckpointedFunction {
        private final String chosen;
        private final boolean restoring;
        private transient Map<String, State> states;

        Holders(String chosen, boolean restoring) {
            this.chosen = chosen.equals("-") ? String.join(",", FORMS.keySet()) : chosen;
            this.restoring = restoring;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            states = new LinkedHashMap<>();
            for (String one : chosen.split(",")) {
                String[] words = one.split(":");
                String form = words.length > 1 ? words[1] : FORMS.get(words[0]);
                states.put(words[0], state(context.getOperatorStateStore(), words[0], form));
            }
            if (restoring) {
                Map<String, Object> line = new TreeMap<>();
                line.put("subtask", getRuntimeContext().getTaskInfo().getIndexOfThisSubtask());
                for (Map.Entry<String, State> one : states.entrySet()) {
                    line.put(one.getKey(), held(one.getValue()));
                }
                EvolvingJobs.LINES.add(Json.of(line));
            }
        }

        private static State state(OperatorStateStore store, String name, String form)
                throws Exception {
            TypeInformation<?> type = name.equals("labels") ? LABEL : ADDRESS;
            if (form.equals("broadcast")) {
                MapStateDescriptor<?, ?> map = name.equals("places")
                        ? new MapStateDescriptor<>(name, ADDRESS, Types.STRING)
                        : new MapStateDescriptor<>(name, Types.STRING, type);
                return store.getBroadcastState(map);
            }
            ListStateDescriptor<?> list = new ListStateDescriptor<>(name, type);
            return form.equals("split") ? store.getListState(list) : store.getUnionListState(list);
        }

        /** A list as it is; entries as pairs, whose order is not settled. */
        private static List<Object> held(State state) throws Exception {
            List<Object> found = new ArrayList<>();
            if (state instanceof ListState) {
                for (Object one : ((ListState<?>) state).get()) {
                    found.add(EvolvingJobs.plain(one));
                }
                return found;
            }
            for (Map.Entry<?, ?> one : ((BroadcastState<?, ?>) state).immutableEntries()) {
                found.add(Json.listOf(
                        EvolvingJobs.plain(one.getKey()), EvolvingJobs.plain(one.getValue())));
            }
            return found;
        }

        @Override
        @SuppressWarnings("unchecked")
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            if (restoring) {
                return;
            }
            int subtask = getRuntimeContext().getTaskInfo().getIndexOfThisSubtask();
            ListState<Object> addresses = (ListState<Object>) states.get("addresses");
            ListState<Object> labels = (ListState<Object>) states.get("labels");
            BroadcastState<String, Object> depots =
                    (BroadcastState<String, Object>) states.get("depots");
            BroadcastState<Object, String> places =
                    (BroadcastState<Object, String>) states.get("places");
            addresses.clear();
            labels.clear();
            places.clear();
            for (long k = 0; k < EvolvingJobs.KEYS; k++) {
                Shop.Address address = EvolvingJobs.address(k);
                if (address != null && k % 5 < 2 + subtask) {
                    addresses.add(address);
                }
                if (k < 3 + 2 * subtask) {
                    labels.add(EvolvingJobs.label(k + 10 * subtask));
                }
                depots.put("depot-" + k, address);
                if (address != null) {
                    places.put(address, "place-" + k);
                }
            }
        }

        @Override
        public Long map(Long number) {
            EvolvingJobs.SEEN.incrementAndGet();
            return number;
        }
    }
}
