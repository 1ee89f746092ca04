import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReadOnlyBroadcastState;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.BroadcastStream;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.BroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Jobs with operator state: `operator` has it alone, `mixed` beside keyed and broadcast state.
 *
 * <p>When restoring, each subtask prints what it got, lists in the order that it got them.
 */
class OperatorJobs {
    private static final int RULES = 28;
    static final MapStateDescriptor<String, Integer> RULE_STATE =
            new MapStateDescriptor<>("rules", Types.STRING, Types.INT);

    /** Split and union lists in one operator, a broadcast state in another. */
    static long operator(
            DataStream<Long> numbers, DataStream<Long> others, long keys, boolean restoring) {
        numbers.rebalance().map(new Lists(restoring)).returns(Types.LONG).uid("opstate")
                .sinkTo(new DiscardingSink<>());
        BroadcastStream<Long> rules = rules(others, restoring);
        numbers.rebalance().connect(rules).process(new Rules(restoring)).uid("rules")
                .returns(Types.LONG).sinkTo(new DiscardingSink<>());
        int parallelism = numbers.getExecutionEnvironment().getParallelism();
        return 2 * keys + (long) RULES * parallelism;
    }

    /** All of it in one operator, keyed state too. */
    static long mixed(
            DataStream<Long> numbers, DataStream<Long> others, long keys, boolean restoring) {
        BroadcastStream<Long> rules = rules(others, restoring);
        numbers.map((MapFunction<Long, String>) Jobs::word).returns(Types.STRING)
                .keyBy(word -> word).connect(rules).process(new Mixed(restoring)).uid("mixed")
                .returns(Types.LONG).sinkTo(new DiscardingSink<>());
        return keys + (long) RULES * numbers.getExecutionEnvironment().getParallelism();
    }

    /** What `OldJobs` wrote with an older Flink: only restored here. */
    static long old(DataStream<Long> numbers, long keys, boolean restoring) {
        numbers.map(new Lists(restoring)).returns(Types.LONG).uid("lists")
                .keyBy(number -> "word-" + number % keys)
                .process(new Old()).returns(Types.LONG).uid("keyed")
                .sinkTo(new DiscardingSink<>());
        return 2 * keys;
    }

    private static BroadcastStream<Long> rules(DataStream<Long> others, boolean restoring) {
        return others.filter(k -> !restoring && k < RULES).returns(Types.LONG).broadcast(RULE_STATE);
    }

    /** What a subtask's lists hold, and lines about them. */
    static class Held {
        final ListState<Long> split;
        final ListState<Tuple2<String, Integer>> offsets;
        final ListState<String> union;
        final ListState<Long> lone;
        final ListState<String> rare;
        private final List<Long> seen = new ArrayList<>();
        private final int subtask;

        Held(FunctionInitializationContext context, int subtask, boolean restoring)
                throws Exception {
            this.subtask = subtask;
            split = context.getOperatorStateStore()
                    .getListState(new ListStateDescriptor<>("split", Types.LONG));
            offsets = context.getOperatorStateStore().getListState(new ListStateDescriptor<>(
                    "offsets", Types.TUPLE(Types.STRING, Types.INT)));
            union = context.getOperatorStateStore()
                    .getUnionListState(new ListStateDescriptor<>("union", Types.STRING));
            lone = context.getOperatorStateStore()
                    .getListState(new ListStateDescriptor<>("lone", Types.LONG));
            rare = context.getOperatorStateStore()
                    .getUnionListState(new ListStateDescriptor<>("rare", Types.STRING));
            if (restoring) {
                Map<String, Object> line = new TreeMap<>();
                line.put("subtask", subtask);
                line.put("split", list(split.get()));
                List<Object> pairs = new ArrayList<>();
                for (Tuple2<String, Integer> one : offsets.get()) {
                    pairs.add(Json.listOf(one.f0, one.f1));
                }
                line.put("offsets", pairs);
                line.put("union", list(union.get()));
                line.put("lone", list(lone.get()));
                line.put("rare", list(rare.get()));
                Jobs.LINES.add(Json.of(line));
            }
        }

        private static List<Object> list(Iterable<?> values) {
            List<Object> held = new ArrayList<>();
            values.forEach(held::add);
            return held;
        }

        void see(long number) {
            seen.add(number);
        }

        /**
         * Lists of unequal lengths: a union longer the later the subtask, offsets for one in two,
         * and two that the second subtask alone has elements of.
         */
        void save() throws Exception {
            split.update(seen);
            List<Tuple2<String, Integer>> pairs = new ArrayList<>();
            for (int i = 0; i <= subtask % 2; i++) {
                pairs.add(Tuple2.of("partition-" + subtask + "-" + i, i * seen.size()));
            }
            offsets.update(pairs);
            List<String> names = new ArrayList<>();
            for (int i = 0; i < 3 * subtask + 1; i++) {
                names.add("subtask-" + subtask + "-" + i);
            }
            union.update(names);
            lone.update(subtask == 1 ? List.of(11L, 7L, 5L, 3L, 2L) : List.of());
            rare.update(subtask == 1 ? List.of("only", "here") : List.of());
        }
    }

    private static void print(int subtask, ReadOnlyBroadcastState<String, Integer> state)
            throws Exception {
        Map<String, Object> rules = new TreeMap<>();
        for (Map.Entry<String, Integer> one : state.immutableEntries()) {
            rules.put(one.getKey(), one.getValue());
        }
        Map<String, Object> line = new TreeMap<>();
        line.put("subtask", subtask);
        line.put("rules", rules);
        Jobs.LINES.add(Json.of(line));
    }

    static class Lists extends RichMapFunction<Long, Long> implements CheckpointedFunction {
        private final boolean restoring;
        private transient Held held;

        Lists(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            held = new Held(
                    context, getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), restoring);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            held.save();
        }

        @Override
        public Long map(Long number) {
            held.see(number);
            Jobs.SEEN.incrementAndGet();
            return number;
        }
    }

    static class Old extends KeyedProcessFunction<String, Long, Long> {
        private transient ValueState<Long> count;
        private transient ListState<Integer> items;
        private transient MapState<String, Double> scores;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            items = getRuntimeContext().getListState(new ListStateDescriptor<>("items", Types.INT));
            scores = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("scores", Types.STRING, Types.DOUBLE));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out)
                throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("count", count.value());
            line.put("items", Held.list(items.get()));
            Map<String, Object> all = new TreeMap<>();
            for (Map.Entry<String, Double> one : scores.entries()) {
                all.put(one.getKey(), one.getValue());
            }
            line.put("scores", all);
            Jobs.LINES.add(Json.of(line));
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Long> out) {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("timer", timestamp);
            Jobs.LINES.add(Json.of(line));
        }
    }

    static class Rules extends BroadcastProcessFunction<Long, Long, Long> {
        private final boolean restoring;
        private transient boolean printed;

        Rules(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void processElement(Long number, ReadOnlyContext context, Collector<Long> out)
                throws Exception {
            Jobs.SEEN.incrementAndGet();
            if (restoring && !printed) {
                printed = true;
                print(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(),
                        context.getBroadcastState(RULE_STATE));
            }
        }

        @Override
        public void processBroadcastElement(Long rule, Context context, Collector<Long> out)
                throws Exception {
            context.getBroadcastState(RULE_STATE).put("rule-" + rule, (int) (rule * 3));
            Jobs.SEEN.incrementAndGet();
        }
    }

    static class Mixed extends KeyedBroadcastProcessFunction<String, String, Long, Long>
            implements CheckpointedFunction {
        private final boolean restoring;
        private transient Held held;
        private transient ValueState<Long> length;
        private transient boolean printed;

        Mixed(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            length = getRuntimeContext().getState(new ValueStateDescriptor<>("length", Types.LONG));
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            held = new Held(
                    context, getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(), restoring);
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            held.save();
        }

        @Override
        public void processElement(String word, ReadOnlyContext context, Collector<Long> out)
                throws Exception {
            Jobs.SEEN.incrementAndGet();
            if (!restoring) {
                held.see(word.length() * 1000L + word.hashCode() % 1000);
                length.update((long) word.length());
                return;
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", word);
            line.put("length", length.value());
            Jobs.LINES.add(Json.of(line));
            if (!printed) {
                printed = true;
                print(getRuntimeContext().getTaskInfo().getIndexOfThisSubtask(),
                        context.getBroadcastState(RULE_STATE));
            }
        }

        @Override
        public void processBroadcastElement(Long rule, Context context, Collector<Long> out)
                throws Exception {
            context.getBroadcastState(RULE_STATE).put("rule-" + rule, (int) (rule * 3));
            Jobs.SEEN.incrementAndGet();
        }
    }
}
