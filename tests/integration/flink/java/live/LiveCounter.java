import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichFlatMapFunction;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.util.ratelimit.RateLimiterStrategy;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/**
 * Numbers from 0 on, counted by their remainder: of 50 keys, each knows how many it has seen and
 * the last. So any savepoint shows whether one was lost or came twice.
 *
 * <p>Arguments: the job's name; `text` makes the count a text, which a number can't become.
 */
public class LiveCounter {
    private static final long KEYS = 50;

    public static void main(String[] arguments) throws Exception {
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.getExecutionEnvironment();
        GeneratorFunction<Long, Long> same = number -> number;
        DataGeneratorSource<Long> numbers = new DataGeneratorSource<>(
                same, Long.MAX_VALUE, RateLimiterStrategy.perSecond(400), Types.LONG);
        boolean text = arguments.length > 1 && arguments[1].equals("text");
        environment.fromSource(numbers, WatermarkStrategy.noWatermarks(), "numbers")
                .setParallelism(1)
                .uid("numbers")
                .keyBy(number -> number % KEYS, Types.LONG)
                .flatMap(new Counting(text))
                .uid("counter")
                .returns(Types.LONG)
                .sinkTo(new DiscardingSink<>())
                .uid("nowhere");
        environment.execute(arguments[0]);
    }

    private static class Counting extends RichFlatMapFunction<Long, Long> {
        private final boolean text;
        private transient ValueState<Object> count;
        private transient ValueState<Long> last;

        Counting(boolean text) {
            this.text = text;
        }

        @Override
        @SuppressWarnings("unchecked")
        public void open(OpenContext context) {
            TypeInformation<?> type = text ? Types.STRING : Types.LONG;
            count = getRuntimeContext()
                    .getState(new ValueStateDescriptor<>("count", (TypeInformation<Object>) type));
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Types.LONG));
        }

        @Override
        public void flatMap(Long number, Collector<Long> out) throws Exception {
            Object held = count.value();
            long counted = held == null ? 0 : Long.parseLong(held.toString());
            count.update(text ? (Object) Long.toString(counted + 1) : (Object) (counted + 1));
            last.update(number);
        }
    }
}
