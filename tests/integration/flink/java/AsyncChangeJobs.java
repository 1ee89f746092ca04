import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.v2.AggregatingState;
import org.apache.flink.api.common.state.v2.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.v2.ListState;
import org.apache.flink.api.common.state.v2.ListStateDescriptor;
import org.apache.flink.api.common.state.v2.MapState;
import org.apache.flink.api.common.state.v2.MapStateDescriptor;
import org.apache.flink.api.common.state.v2.ReducingState;
import org.apache.flink.api.common.state.v2.ReducingStateDescriptor;
import org.apache.flink.api.common.state.v2.ValueState;
import org.apache.flink.api.common.state.v2.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/**
 * The job `changes` with the asynchronous state of Flink 2: generation after generation values are
 * set and cleared, lists grow, maps lose entries, windows merge, timers fire.
 */
class AsyncChangeJobs {
    private static final long FAR = 4_000_000_000_000L;

    static List<DataStream<String>> changes(
            StreamExecutionEnvironment env, long keys, boolean restoring) {
        DataStream<Long> numbers = ChainJobs.numbers(env, keys, restoring);
        DataStream<String> lines = ChangeJobs.stamped(numbers, restoring)
                .keyBy(number -> number % ChainJobs.GENERATION - 5).enableAsyncState()
                .process(new Changes(restoring)).uid("changes").name("changes");
        KeyedStream<Long, String> sessions = ChangeJobs.stamped(
                numbers.filter(number -> !restoring).returns(Types.LONG).setParallelism(1), restoring)
                .keyBy(number -> "session-" + number % 7).enableAsyncState();
        DataStream<String> sums = sessions
                .window(TumblingEventTimeWindows.of(Duration.ofMillis(4_000)))
                .reduce((ReduceFunction<Long>) Long::sum, new ChangeJobs.Print("sum"), Types.STRING)
                .uid("sums").name("sums");
        DataStream<String> lists = sessions
                .window(TumblingEventTimeWindows.of(Duration.ofMillis(5_000)))
                .process(new ChangeJobs.Print("list"), Types.STRING).uid("lists").name("lists");
        return List.of(lines, sums, lists);
    }

    static class Changes extends KeyedProcessFunction<Long, Long, String> {
        private final boolean restoring;
        private transient ValueState<String> text;
        private transient ValueState<Long> session;
        private transient ListState<Integer> items;
        private transient MapState<String, Long> notes;
        private transient ReducingState<Long> total;
        private transient AggregatingState<Long, Double> average;

        Changes(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            text = getRuntimeContext().getState(new ValueStateDescriptor<>("text", Types.STRING));
            items = getRuntimeContext().getListState(new ListStateDescriptor<>("items", Types.INT));
            notes = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("notes", Types.STRING, Types.LONG));
            total = getRuntimeContext().getReducingState(
                    new ReducingStateDescriptor<>("total", Long::sum, Types.LONG));
            average = getRuntimeContext().getAggregatingState(new AggregatingStateDescriptor<>(
                    "average", new Jobs.Average(), Types.TUPLE(Types.LONG, Types.LONG)));
            ValueStateDescriptor<Long> expiring = new ValueStateDescriptor<>("session", Types.LONG);
            expiring.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(3650)).build());
            session = getRuntimeContext().getState(expiring);
        }

        @Override
        public void processElement(Long number, Context context, Collector<String> out) {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            change((int) (number / ChainJobs.GENERATION), number % ChainJobs.GENERATION, context);
            Jobs.SEEN.incrementAndGet();
        }

        private void change(int generation, long k, Context context) {
            long step = k + generation;
            if (step % 6 == 5) {
                text.asyncClear();
                items.asyncClear();
                notes.asyncClear();
                total.clear(); // what is added next reads it: it must be gone by then
                average.clear();
            }
            if (step % 4 != 3) {
                text.asyncUpdate("größe " + generation + " of " + k);
                session.asyncUpdate(k * 1000 + generation);
            }
            switch ((int) (step % 5)) {
                case 0:
                    items.asyncAdd(generation * 100);
                    break;
                case 1:
                    items.asyncAddAll(List.of(generation, (int) k, -1));
                    break;
                case 2:
                    items.asyncUpdate(List.of(generation * 7));
                    items.asyncAdd(44);
                    break;
                case 3:
                    items.asyncClear(); // an empty list, added to, begins with a comma in ForSt
                    break;
                default:
            }
            notes.asyncPut("g" + generation, k);
            if (step % 3 == 0) {
                // not `asyncPutAll`: ForSt of Flink 2.3 writes its values without their null flags
                notes.asyncPut("all", step);
                notes.asyncPut("more", -step);
            }
            if (step % 3 == 1) {
                notes.asyncRemove("all");
            }
            total.asyncAdd(step);
            average.asyncAdd(k);
            context.timerService().registerEventTimeTimer(context.timestamp() + 2_000);
            context.timerService().registerEventTimeTimer(FAR + k);
            context.timerService().registerProcessingTimeTimer(FAR + generation);
            if (generation > 0) {
                context.timerService().deleteProcessingTimeTimer(FAR + generation - 1);
            }
        }

        private Map<String, Object> everything(Long key) {
            List<Object> elements = new ArrayList<>();
            Iterable<Integer> held = items.get(); // null of a list that is not there
            if (held != null) {
                held.forEach(elements::add);
            }
            Map<String, Object> map = new TreeMap<>();
            for (Map.Entry<String, Long> entry : notes.entries()) {
                map.put(entry.getKey(), entry.getValue());
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            line.put("text", text.value());
            line.put("session", session.value());
            line.put("items", elements);
            line.put("notes", map);
            line.put("total", total.get());
            line.put("average", average.get());
            return line;
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("timer", timestamp);
            out.collect(Json.of(line));
            if (!restoring) {
                items.asyncAdd((int) (timestamp % 1_000));
            }
        }
    }
}
