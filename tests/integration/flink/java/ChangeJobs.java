import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.ReduceFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/**
 * A job that changes its state in every way there is, for logs of changes: generation after
 * generation values are set and cleared, lists grow, maps lose entries, windows merge, timers fire.
 */
class ChangeJobs {
    private static final long SPAN = 100_000L;
    private static final long FAR = 4_000_000_000_000L;

    static List<DataStream<String>> changes(
            StreamExecutionEnvironment env, long keys, boolean restoring) {
        DataStream<Long> numbers = ChainJobs.numbers(env, keys, restoring);
        DataStream<String> lines = stamped(numbers, restoring)
                .keyBy(number -> number % ChainJobs.GENERATION - 5)
                .process(new Changes(restoring)).uid("changes").name("changes");
        KeyedStream<Long, String> sessions = stamped(
                numbers.filter(number -> !restoring).returns(Types.LONG), restoring)
                .keyBy(number -> "session-" + number % 7);
        DataStream<String> sums = sessions
                .window(EventTimeSessionWindows.withGap(Duration.ofMillis(4_000)))
                .reduce((ReduceFunction<Long>) Long::sum, new Print("sum"), Types.STRING)
                .uid("sums").name("sums");
        DataStream<String> lists = sessions
                .window(EventTimeSessionWindows.withGap(Duration.ofMillis(5_000)))
                .process(new Print("list"), Types.STRING).uid("lists").name("lists");
        return List.of(lines, sums, lists);
    }

    static DataStream<Long> stamped(DataStream<Long> numbers, boolean restoring) {
        return numbers.assignTimestampsAndWatermarks(WatermarkStrategy
                .<Long>forGenerator(context -> new Late(restoring))
                .withTimestampAssigner((number, before) -> time(number))).setParallelism(1);
    }

    private static long time(long number) {
        return number / ChainJobs.GENERATION * SPAN
                + number % ChainJobs.GENERATION * 7_919 % 60_000;
    }

    /** With each generation time comes to where the timers and windows of the one before end. */
    static class Late implements WatermarkGenerator<Long> {
        private final boolean restoring;

        Late(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void onEvent(Long number, long timestamp, WatermarkOutput output) {
            if (!restoring) {
                output.emitWatermark(
                        new Watermark(number / ChainJobs.GENERATION * SPAN - SPAN / 2));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static class Print extends ProcessWindowFunction<Long, String, String, TimeWindow> {
        private final String kind;

        Print(String kind) {
            this.kind = kind;
        }

        @Override
        public void process(
                String key, Context context, Iterable<Long> values, Collector<String> out) {
            List<Object> all = new ArrayList<>();
            values.forEach(all::add);
            Map<String, Object> line = new TreeMap<>();
            line.put("window", kind);
            line.put("key", key);
            line.put("start", context.window().getStart());
            line.put("end", context.window().getEnd());
            line.put("values", all);
            out.collect(Json.of(line));
        }
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
        public void processElement(Long number, Context context, Collector<String> out)
                throws Exception {
            if (restoring) {
                out.collect(Json.of(everything(context.getCurrentKey())));
                return;
            }
            change((int) (number / ChainJobs.GENERATION), number % ChainJobs.GENERATION, context);
            Jobs.SEEN.incrementAndGet();
        }

        private void change(int generation, long k, Context context) throws Exception {
            long step = k + generation;
            if (step % 6 == 5) {
                text.clear();
                items.clear();
                notes.clear();
                total.clear();
                average.clear();
            }
            if (step % 4 != 3) {
                text.update("größe " + generation + " of " + k);
                session.update(k * 1000 + generation);
            }
            switch ((int) (step % 5)) {
                case 0:
                    items.add(generation * 100);
                    break;
                case 1:
                    items.addAll(List.of(generation, (int) k, -1));
                    break;
                case 2:
                    items.update(List.of(generation * 7));
                    items.add(44);
                    break;
                case 3:
                    items.update(List.of());
                    break;
                default:
            }
            notes.put("g" + generation, k);
            if (step % 3 == 0) {
                notes.putAll(Map.of("all", step, "more", -step));
            }
            if (step % 3 == 1) {
                notes.remove("all");
                Iterator<Map.Entry<String, Long>> entries = notes.iterator();
                entries.next().setValue(77L);
                if (entries.hasNext()) {
                    entries.next();
                    entries.remove();
                }
            }
            total.add(step);
            average.add(k);
            context.timerService().registerEventTimeTimer(context.timestamp() + 2_000);
            context.timerService().registerEventTimeTimer(FAR + k);
            context.timerService().registerProcessingTimeTimer(FAR + generation);
            if (generation > 0) {
                context.timerService().deleteProcessingTimeTimer(FAR + generation - 1);
            }
        }

        private Map<String, Object> everything(Long key) throws Exception {
            List<Object> elements = new ArrayList<>();
            items.get().forEach(elements::add);
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
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out)
                throws Exception {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", context.getCurrentKey());
            line.put("timer", timestamp);
            out.collect(Json.of(line));
            if (!restoring) {
                items.add((int) (timestamp % 1_000));
            }
        }
    }
}
