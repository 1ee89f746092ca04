import java.time.Duration;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.StateTtlConfig;
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
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** A job of Flink 2's asynchronous state, whose savepoints Flink writes in native format only. */
class AsyncJobs {
    private static final long FAR = 4_000_000_000_000L;

    static DataStream<String> async(DataStream<Long> numbers, boolean restoring) {
        return numbers.keyBy(k -> "key-" + k).enableAsyncState()
                .process(new Async(restoring)).uid("async").name("async");
    }

    static class Async extends KeyedProcessFunction<String, Long, String> {
        private final boolean restoring;
        private transient ValueState<Long> count;
        private transient ValueState<String> session;
        private transient MapState<String, Integer> scores;
        private transient ListState<Long> items;
        private transient ReducingState<Long> total;

        Async(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
            ValueStateDescriptor<String> expiring =
                    new ValueStateDescriptor<>("session", Types.STRING);
            expiring.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(3650)).build());
            session = getRuntimeContext().getState(expiring);
            scores = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("scores", Types.STRING, Types.INT));
            items = getRuntimeContext().getListState(new ListStateDescriptor<>("items", Types.LONG));
            total = getRuntimeContext().getReducingState(
                    new ReducingStateDescriptor<>("total", Long::sum, Types.LONG));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out) {
            if (restoring) {
                show(context.getCurrentKey(), out);
                return;
            }
            count.asyncUpdate(k * 31 - 7);
            session.asyncUpdate("session-" + k);
            scores.asyncPut("s", k.intValue());
            scores.asyncPut("t", -1);
            items.asyncAdd(k);
            items.asyncAdd(k + 1);
            total.asyncAdd(k);
            total.asyncAdd(k * k);
            context.timerService().registerEventTimeTimer(FAR + k);
            Jobs.SEEN.incrementAndGet();
        }

        private void show(String key, Collector<String> out) {
            Map<String, Object> line = new TreeMap<>();
            line.put("key", key);
            count.asyncValue().thenAccept(one -> line.put("count", one));
            session.asyncValue().thenAccept(one -> line.put("session", one));
            scores.asyncGet("s").thenAccept(one -> line.put("score", one));
            items.asyncGet().thenAccept(
                    all -> all.onNext(one -> {
                        line.merge("items", one, (a, b) -> a + "," + b);
                    }));
            total.asyncGet().thenAccept(one -> {
                line.put("total", one);
                out.collect(Json.of(line));
            });
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) {
            out.collect(Json.of(Map.of("key", context.getCurrentKey(), "timer", timestamp)));
        }
    }
}
