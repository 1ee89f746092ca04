import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.flink.api.common.state.AggregatingStateDeclaration;
import org.apache.flink.api.common.state.BroadcastStateDeclaration;
import org.apache.flink.api.common.state.ListStateDeclaration;
import org.apache.flink.api.common.state.MapStateDeclaration;
import org.apache.flink.api.common.state.ReducingStateDeclaration;
import org.apache.flink.api.common.state.StateDeclaration;
import org.apache.flink.api.common.state.StateDeclarations;
import org.apache.flink.api.common.state.ValueStateDeclaration;
import org.apache.flink.api.common.typeinfo.TypeDescriptors;
import org.apache.flink.api.connector.dsv2.DataStreamV2SinkUtils;
import org.apache.flink.api.connector.dsv2.DataStreamV2SourceUtils;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;
import org.apache.flink.datastream.api.function.TwoInputBroadcastStreamProcessFunction;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream;
import org.apache.flink.datastream.impl.ExecutionEnvironmentImpl;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;

/** A job of the DataStream API V2, whose functions declare their states. */
class DeclaredJobs {
    private static final long FAR = 4_000_000_000_000L;
    private static final long RULES = 5;

    /** Build the job into env; returns how many records it will have seen when its state is full. */
    static long declared(StreamExecutionEnvironment env, long keys, boolean restoring) {
        ExecutionEnvironmentImpl own = (ExecutionEnvironmentImpl) ExecutionEnvironmentImpl.newInstance();
        own.setParallelism(env.getParallelism());
        NonKeyedPartitionStream<Long> numbers = numbers(own, "numbers", keys, restoring, 0);
        // a rule is applied to the keys that there are: each subtask needs some before
        NonKeyedPartitionStream<Long> rules = restoring
                ? numbers(own, "rules", 0, true, 0)
                : numbers(own, "rules", RULES, false, keys * 2);
        numbers.keyBy(k -> k * 31 - 7)
                .connectAndProcess(rules.broadcast(), new Keyed(restoring))
                .withUid("declared").withName("declared")
                .process(new Print()).toSink(DataStreamV2SinkUtils.wrapSink(new DiscardingSink<>()));
        numbers.shuffle().process(new Parts(restoring)).withUid("parts").withName("parts")
                .process(new Print()).toSink(DataStreamV2SinkUtils.wrapSink(new DiscardingSink<>()));
        own.getTransformations().forEach(env::addOperator);
        return keys * 2 + RULES * env.getParallelism();
    }

    private static NonKeyedPartitionStream<Long> numbers(
            ExecutionEnvironmentImpl env, String name, long count, boolean restoring, long seen) {
        String uid = (restoring ? "restoring-" : "") + name;
        long end = restoring ? Math.max(count - 1, 0) : Long.MAX_VALUE - 1;
        return env.fromSource(
                        DataStreamV2SourceUtils.wrapSource(new NumberSequenceSource(0, end)), name)
                .withUid(uid + "-source").withParallelism(1)
                .process(new Few(count, seen)).withUid(uid).withParallelism(1);
    }

    /** The first numbers, once the job has seen so many records; then it idles. */
    static class Few implements OneInputStreamProcessFunction<Long, Long> {
        private final long count;
        private final long seen;

        Few(long count, long seen) {
            this.count = count;
            this.seen = seen;
        }

        @Override
        public void processRecord(Long number, Collector<Long> out, PartitionedContext<Long> context)
                throws Exception {
            while (Jobs.SEEN.get() < seen) {
                Thread.sleep(5);
            }
            if (number < count) {
                out.collect(number);
            } else {
                Thread.sleep(5);
            }
        }
    }

    static class Print implements OneInputStreamProcessFunction<String, String> {
        @Override
        public void processRecord(
                String line, Collector<String> out, PartitionedContext<String> context) {
            Jobs.LINES.add(line);
        }
    }

    static class Keyed implements TwoInputBroadcastStreamProcessFunction<Long, Long, String> {
        private static final ValueStateDeclaration<String> NAME =
                StateDeclarations.valueState("name", TypeDescriptors.STRING);
        private static final ListStateDeclaration<Long> ITEMS =
                StateDeclarations.listState("items", TypeDescriptors.LONG);
        private static final MapStateDeclaration<String, Integer> SCORES =
                StateDeclarations.mapState("scores", TypeDescriptors.STRING, TypeDescriptors.INT);
        private static final ReducingStateDeclaration<Long> TOTAL =
                StateDeclarations.reducingState("total", TypeDescriptors.LONG, Long::sum);
        private static final AggregatingStateDeclaration<Long, Long, Long> LARGEST =
                StateDeclarations.aggregatingState("largest", TypeDescriptors.LONG, new Largest());
        private static final BroadcastStateDeclaration<Long, String> RULES_BY_NUMBER =
                new StateDeclarations.MapStateDeclarationBuilder<>(
                        "rules", TypeDescriptors.LONG, TypeDescriptors.STRING).buildBroadcast();
        private final boolean restoring;

        Keyed(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public Set<StateDeclaration> usesStates() {
            return Set.of(NAME, ITEMS, SCORES, TOTAL, LARGEST, RULES_BY_NUMBER);
        }

        @Override
        public void processRecordFromNonBroadcastInput(
                Long k, Collector<String> out, PartitionedContext<String> context) throws Exception {
            var states = context.getStateManager();
            if (restoring) {
                Map<String, Object> line = new TreeMap<>();
                List<Object> items = new ArrayList<>();
                states.getState(ITEMS).get().forEach(items::add);
                Map<String, Object> rules = new TreeMap<>();
                for (Map.Entry<Long, String> rule :
                        states.getState(RULES_BY_NUMBER).immutableEntries()) {
                    rules.put(rule.getKey().toString(), rule.getValue());
                }
                line.put("key", states.getCurrentKey());
                line.put("name", states.getState(NAME).value());
                line.put("items", items);
                line.put("score", states.getState(SCORES).get("s"));
                line.put("total", states.getState(TOTAL).get());
                line.put("largest", states.getState(LARGEST).get());
                line.put("rules", rules);
                out.collect(Json.of(line));
                return;
            }
            states.getState(NAME).update("name " + k);
            states.getState(ITEMS).add(k);
            states.getState(ITEMS).add(-k);
            states.getState(SCORES).put("s", k.intValue());
            states.getState(SCORES).put("t", 1);
            states.getState(TOTAL).add(k);
            states.getState(TOTAL).add(k * k);
            states.getState(LARGEST).add(k);
            states.getState(LARGEST).add(100L);
            context.getProcessingTimeManager().registerTimer(FAR + k);
            Jobs.SEEN.incrementAndGet();
        }

        @Override
        public void processRecordFromBroadcastInput(Long number, NonPartitionedContext<String> context)
                throws Exception {
            if (!restoring) {
                context.applyToAllPartitions((out, partition) -> partition.getStateManager()
                        .getState(RULES_BY_NUMBER).put(number, "rule " + number));
                Jobs.SEEN.incrementAndGet();
            }
        }
    }

    static class Largest
            implements org.apache.flink.api.common.functions.AggregateFunction<Long, Long, Long> {
        @Override
        public Long createAccumulator() {
            return Long.MIN_VALUE;
        }

        @Override
        public Long add(Long value, Long largest) {
            return Math.max(value, largest);
        }

        @Override
        public Long getResult(Long largest) {
            return largest;
        }

        @Override
        public Long merge(Long one, Long other) {
            return Math.max(one, other);
        }
    }

    /** Lists that are dealt out, and given to everyone. */
    static class Parts implements OneInputStreamProcessFunction<Long, String> {
        private static final ListStateDeclaration<Long> SPLIT =
                new StateDeclarations.ListStateDeclarationBuilder<>("split", TypeDescriptors.LONG)
                        .redistributeWithMode(StateDeclaration.RedistributionMode.REDISTRIBUTABLE)
                        .redistributeBy(ListStateDeclaration.RedistributionStrategy.SPLIT).build();
        private static final ListStateDeclaration<String> UNION =
                new StateDeclarations.ListStateDeclarationBuilder<>("union", TypeDescriptors.STRING)
                        .redistributeWithMode(StateDeclaration.RedistributionMode.REDISTRIBUTABLE)
                        .redistributeBy(ListStateDeclaration.RedistributionStrategy.UNION).build();
        private final boolean restoring;
        private transient boolean printed;

        Parts(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public Set<StateDeclaration> usesStates() {
            return Set.of(SPLIT, UNION);
        }

        @Override
        public void processRecord(
                Long k, Collector<String> out, PartitionedContext<String> context) throws Exception {
            var states = context.getStateManager();
            if (!restoring) {
                states.getState(SPLIT).add(k);
                states.getState(UNION).add("of " + k);
                Jobs.SEEN.incrementAndGet();
            } else if (!printed) {
                printed = true;
                for (Long element : states.getState(SPLIT).get()) {
                    out.collect(Json.of(Map.of("split", element)));
                }
                for (String element : states.getState(UNION).get()) {
                    out.collect(Json.of(Map.of("union", element)));
                }
            }
        }
    }
}
