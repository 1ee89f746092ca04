import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.RunnableFuture;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.State;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.core.fs.CloseableRegistry;
import org.apache.flink.runtime.checkpoint.CheckpointOptions;
import org.apache.flink.runtime.state.CheckpointStreamFactory;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyedStateHandle;
import org.apache.flink.runtime.state.LocalRecoveryConfig;
import org.apache.flink.runtime.state.OperatorStateBackend;
import org.apache.flink.runtime.state.OperatorStateHandle;
import org.apache.flink.runtime.state.DefaultOperatorStateBackendBuilder;
import org.apache.flink.runtime.state.SnapshotResult;
import org.apache.flink.runtime.state.StateObject;
import org.apache.flink.runtime.state.UncompressedStreamCompressionDecorator;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.heap.HeapKeyedStateBackend;
import org.apache.flink.runtime.state.heap.HeapKeyedStateBackendBuilder;
import org.apache.flink.runtime.state.heap.HeapPriorityQueueSetFactory;
import org.apache.flink.runtime.state.memory.MemCheckpointStreamFactory;
import org.apache.flink.runtime.state.metrics.LatencyTrackingStateConfig;
import org.apache.flink.runtime.state.metrics.SizeTrackingStateConfig;
import org.apache.flink.runtime.state.ttl.TtlTimeProvider;

/**
 * What becomes of a state that a new job declares otherwise: each form of state is written, and
 * restored as each form, by Flink's own backends; a line of JSON each.
 *
 * <pre>
 * javac -cp FLINK -d OUT RestoreVectors.java Json.java && java -cp FLINK:OUT RestoreVectors > restore.jsonl
 * </pre>
 *
 * `found` is the number of elements that the new state has (0: it begins empty), `refused` the
 * exception; `next` is what the one after finds of it, once an element was added (`next_refused`: the
 * exception that ends that restore). A state that nobody touches is in the next snapshot if `kept`.
 */
public class RestoreVectors {
    private static final String NAME = "s";
    private static final List<String> FORMS =
            List.of(
                    "keyed value",
                    "keyed list",
                    "keyed map",
                    "keyed reducing",
                    "keyed aggregating",
                    "SPLIT list",
                    "UNION list",
                    "broadcast");

    static class Sum implements AggregateFunction<Long, Long, Long> {
        @Override
        public Long createAccumulator() {
            return 0L;
        }

        @Override
        public Long add(Long value, Long accumulator) {
            return value + accumulator;
        }

        @Override
        public Long getResult(Long accumulator) {
            return accumulator;
        }

        @Override
        public Long merge(Long a, Long b) {
            return a + b;
        }
    }

    /** The state of one subtask. */
    static class Subtask implements AutoCloseable {
        private final CloseableRegistry closing = new CloseableRegistry();
        private final OperatorStateBackend operator;
        private final HeapKeyedStateBackend<String> keyed;

        Subtask(Collection<OperatorStateHandle> states, Collection<KeyedStateHandle> keyedStates)
                throws Exception {
            ClassLoader loader = getClass().getClassLoader();
            ExecutionConfig config = new ExecutionConfig();
            KeyGroupRange all = new KeyGroupRange(0, 127);
            operator =
                    new DefaultOperatorStateBackendBuilder(loader, config, false, states, closing)
                            .build();
            keyed =
                    new HeapKeyedStateBackendBuilder<>(
                                    null,
                                    StringSerializer.INSTANCE,
                                    loader,
                                    all.getNumberOfKeyGroups(),
                                    all,
                                    config,
                                    TtlTimeProvider.DEFAULT,
                                    LatencyTrackingStateConfig.disabled(),
                                    SizeTrackingStateConfig.disabled(),
                                    keyedStates,
                                    UncompressedStreamCompressionDecorator.INSTANCE,
                                    LocalRecoveryConfig.BACKUP_AND_RECOVERY_DISABLED,
                                    new HeapPriorityQueueSetFactory(all, all.getNumberOfKeyGroups(), 16),
                                    false,
                                    closing)
                            .build();
            keyed.setCurrentKey("k");
        }

        /** The same subtask after a failure. */
        Subtask again() throws Exception {
            CheckpointStreamFactory streams = new MemCheckpointStreamFactory(1 << 20);
            CheckpointOptions options = CheckpointOptions.forCheckpointWithDefaultLocation();
            return new Subtask(
                    taken(operator.snapshot(1, 1, streams, options)),
                    taken(keyed.snapshot(1, 1, streams, options)));
        }

        private static <T extends StateObject> List<T> taken(RunnableFuture<SnapshotResult<T>> one)
                throws Exception {
            one.run();
            T handle = one.get().getJobManagerOwnedSnapshot();
            return handle == null ? List.of() : List.of(handle);
        }

        /** The elements of the state in that form, before one is added if that is asked for. */
        int touch(String form, boolean add) throws Exception {
            List<Object> found = new ArrayList<>();
            switch (form) {
                case "keyed value" -> {
                    ValueState<Long> state = of(new ValueStateDescriptor<>(NAME, Long.class));
                    addTo(found, state.value());
                    if (add) state.update(1L);
                }
                case "keyed list" -> {
                    ListState<Long> state = of(new ListStateDescriptor<>(NAME, Long.class));
                    Iterable<Long> held = state.get();
                    if (held != null) held.forEach(found::add);
                    if (add) state.add(1L);
                }
                case "keyed map" -> {
                    MapState<Long, Long> state =
                            of(new MapStateDescriptor<>(NAME, Long.class, Long.class));
                    state.keys().forEach(found::add);
                    if (add) state.put(1L, 1L);
                }
                case "keyed reducing" -> {
                    ReducingState<Long> state =
                            of(new ReducingStateDescriptor<>(NAME, Long::sum, Long.class));
                    addTo(found, state.get());
                    if (add) state.add(1L);
                }
                case "keyed aggregating" -> {
                    AggregatingState<Long, Long> state =
                            of(new AggregatingStateDescriptor<>(NAME, new Sum(), Long.class));
                    addTo(found, state.get());
                    if (add) state.add(1L);
                }
                case "broadcast" -> {
                    BroadcastState<Long, Long> state =
                            operator.getBroadcastState(
                                    new MapStateDescriptor<>(
                                            NAME, LongSerializer.INSTANCE, LongSerializer.INSTANCE));
                    state.immutableEntries().forEach(found::add);
                    if (add) state.put(1L, 1L);
                }
                default -> {
                    ListStateDescriptor<Long> wanted =
                            new ListStateDescriptor<>(NAME, LongSerializer.INSTANCE);
                    ListState<Long> state =
                            form.startsWith("SPLIT")
                                    ? operator.getListState(wanted)
                                    : operator.getUnionListState(wanted);
                    state.get().forEach(found::add);
                    if (add) state.add(1L);
                }
            }
            return found.size();
        }

        private static void addTo(List<Object> found, Object one) {
            if (one != null) {
                found.add(one);
            }
        }

        private <S extends State> S of(StateDescriptor<S, ?> wanted) throws Exception {
            wanted.initializeSerializerUnlessSet(new ExecutionConfig());
            return keyed.getPartitionedState(
                    VoidNamespace.INSTANCE, VoidNamespaceSerializer.INSTANCE, wanted);
        }

        @Override
        public void close() throws Exception {
            operator.dispose();
            keyed.dispose();
            closing.close();
        }
    }

    private static void next(Map<String, Object> line, Subtask restored, String form) {
        try (Subtask next = restored.again()) {
            line.put("next", next.touch(form, false));
        } catch (Exception error) {
            line.put("next_refused", error.getClass().getSimpleName());
        }
    }

    public static void main(String[] args) throws Exception {
        for (String before : FORMS) {
            try (Subtask old = new Subtask(List.of(), List.of())) {
                old.touch(before, true);
                for (String after : FORMS) {
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("before", before);
                    line.put("after", after);
                    try (Subtask restored = old.again()) {
                        line.put("found", restored.touch(after, true));
                        next(line, restored, after);
                    } catch (Exception error) {
                        line.put("refused", error.getClass().getSimpleName());
                        line.put("said", error.getMessage());
                    }
                    System.out.println(Json.of(line));
                }
                try (Subtask untouched = old.again();
                        Subtask later = untouched.again()) {
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("undeclared", before);
                    line.put("kept", later.touch(before, false) == 1);
                    System.out.println(Json.of(line));
                }
            }
        }
    }
}
