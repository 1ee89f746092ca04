import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * A job whose last operator is slow, so that its exchanges are full of records: what an unaligned
 * checkpoint of it holds. Restored it is fast, comes to its end, and each key tells what it saw.
 */
class BacklogJobs {
    private static final int KEYS = 24;
    /** The records after which a checkpoint may be taken: long after the exchanges are full. */
    static final long BEFORE = 60;
    private static final long FAR = 4_000_000_000_000L;
    private static final TypeInformation<Tuple2<Long, String>> RECORD =
            Types.TUPLE(Types.LONG, Types.STRING);

    static DataStream<String> backlog(
            StreamExecutionEnvironment env, long records, boolean restoring) {
        return env.fromSequence(0, records - 1).setParallelism(1).uid("numbers").name("numbers")
                .rebalance()
                .map(number -> Tuple2.of(number, text(number))).returns(RECORD)
                .uid("texts").name("texts")
                .assignTimestampsAndWatermarks(WatermarkStrategy
                        .<Tuple2<Long, String>>forGenerator(context -> new Some())
                        .withTimestampAssigner((record, before) -> record.f0 * 1_000))
                .uid("times").name("times")
                .keyBy(record -> record.f0 % KEYS)
                .process(new Seen(restoring)).uid("seen").name("seen");
    }

    /** Some fill no buffer, some several. */
    private static String text(long number) {
        return ("größe-" + number + " ").repeat((int) (number % 50 == 7 ? 700 : number % 9));
    }

    /** A watermark behind every hundredth record. */
    static class Some implements WatermarkGenerator<Tuple2<Long, String>> {
        @Override
        public void onEvent(Tuple2<Long, String> record, long time, WatermarkOutput output) {
            if (record.f0 % 100 < 2) {
                output.emitWatermark(new Watermark(time - 1));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }

    static class Seen extends KeyedProcessFunction<Long, Tuple2<Long, String>, String> {
        private final boolean restoring;
        private transient ListState<Long> numbers;
        private transient ValueState<Tuple2<Long, String>> last;

        Seen(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            numbers = getRuntimeContext().getListState(
                    new ListStateDescriptor<>("numbers", Types.LONG));
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", RECORD));
        }

        @Override
        public void processElement(
                Tuple2<Long, String> record, Context context, Collector<String> out)
                throws Exception {
            if (!record.f1.equals(text(record.f0))) {
                throw new IllegalStateException("record " + record.f0 + " is not what was sent");
            }
            numbers.add(record.f0);
            last.update(record);
            context.timerService().registerEventTimeTimer(FAR);
            Jobs.SEEN.incrementAndGet();
            if (!restoring) {
                Thread.sleep(10);
            }
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out)
                throws Exception {
            List<Object> all = new ArrayList<>();
            numbers.get().forEach(all::add);
            out.collect(Json.of(Map.of("key", context.getCurrentKey(), "numbers", all)));
        }
    }
}
