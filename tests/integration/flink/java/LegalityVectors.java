import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.state.IllegalRedistributionModeException;
import org.apache.flink.api.common.state.ListStateDeclaration;
import org.apache.flink.api.common.state.ListStateDeclaration.RedistributionStrategy;
import org.apache.flink.api.common.state.StateDeclaration;
import org.apache.flink.api.common.state.StateDeclaration.RedistributionMode;
import org.apache.flink.api.common.state.StateDeclarations;
import org.apache.flink.api.common.typeinfo.TypeDescriptors;
import org.apache.flink.api.connector.dsv2.DataStreamV2SourceUtils;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.datastream.api.ExecutionEnvironment;
import org.apache.flink.datastream.api.common.Collector;
import org.apache.flink.datastream.api.context.BasePartitionedContext;
import org.apache.flink.datastream.api.context.NonPartitionedContext;
import org.apache.flink.datastream.api.context.PartitionedContext;
import org.apache.flink.datastream.api.context.TwoOutputNonPartitionedContext;
import org.apache.flink.datastream.api.context.TwoOutputPartitionedContext;
import org.apache.flink.datastream.api.function.OneInputStreamProcessFunction;
import org.apache.flink.datastream.api.function.TwoInputBroadcastStreamProcessFunction;
import org.apache.flink.datastream.api.function.TwoInputNonBroadcastStreamProcessFunction;
import org.apache.flink.datastream.api.function.TwoOutputStreamProcessFunction;
import org.apache.flink.datastream.api.stream.BroadcastStream;
import org.apache.flink.datastream.api.stream.GlobalStream;
import org.apache.flink.datastream.api.stream.KeyedPartitionStream;
import org.apache.flink.datastream.api.stream.NonKeyedPartitionStream;

/**
 * Which states Flink's DataStream V2 lets a function declare: every method that takes a process
 * function, over every stream, with every kind of declaration, as a line of JSON.
 *
 * <pre>
 * javac -cp FLINK -d OUT LegalityVectors.java Json.java && java -cp FLINK:OUT LegalityVectors > legality.jsonl
 * </pre>
 *
 * First come the declarations with their modes; then the contexts that functions are handed, and
 * whether these have a state manager; then the answers.
 */
public class LegalityVectors {
    private static Set<StateDeclaration> used = Set.of();

    static class OneInput implements OneInputStreamProcessFunction<Long, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return used;
        }

        @Override
        public void processRecord(Long record, Collector<Long> out, PartitionedContext<Long> ctx) {}
    }

    static class TwoOutput implements TwoOutputStreamProcessFunction<Long, Long, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return used;
        }

        @Override
        public void processRecord(
                Long record,
                Collector<Long> first,
                Collector<Long> second,
                TwoOutputPartitionedContext<Long, Long> ctx) {}
    }

    static class TwoInput implements TwoInputNonBroadcastStreamProcessFunction<Long, Long, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return used;
        }

        @Override
        public void processRecordFromFirstInput(
                Long record, Collector<Long> out, PartitionedContext<Long> ctx) {}

        @Override
        public void processRecordFromSecondInput(
                Long record, Collector<Long> out, PartitionedContext<Long> ctx) {}
    }

    static class Broadcast implements TwoInputBroadcastStreamProcessFunction<Long, Long, Long> {
        @Override
        public Set<StateDeclaration> usesStates() {
            return used;
        }

        @Override
        public void processRecordFromNonBroadcastInput(
                Long record, Collector<Long> out, PartitionedContext<Long> ctx) {}

        @Override
        public void processRecordFromBroadcastInput(Long record, NonPartitionedContext<Long> ctx) {}
    }

    static class Same implements KeySelector<Long, Long> {
        @Override
        public Long getKey(Long value) {
            return value;
        }
    }

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

    private static final Map<String, Class<?>> STREAMS = new LinkedHashMap<>();
    private static final List<Object> FUNCTIONS =
            List.of(new OneInput(), new TwoOutput(), new TwoInput(), new Broadcast());

    static {
        STREAMS.put("Global", GlobalStream.class);
        STREAMS.put("Non-Keyed", NonKeyedPartitionStream.class);
        STREAMS.put("Keyed", KeyedPartitionStream.class);
        STREAMS.put("Broadcast", BroadcastStream.class);
    }

    public static void main(String[] args) throws Exception {
        Map<String, StateDeclaration> declared = declarations();
        for (Map.Entry<String, StateDeclaration> one : declared.entrySet()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("declared", one.getKey());
            line.put("mode", one.getValue().getRedistributionMode().name());
            if (one.getValue() instanceof ListStateDeclaration<?> list) {
                RedistributionStrategy strategy = list.getRedistributionStrategy();
                line.put("strategy", strategy == null ? null : strategy.name());
            }
            System.out.println(Json.of(line));
        }
        for (Class<?> function :
                List.of(
                        OneInputStreamProcessFunction.class,
                        TwoOutputStreamProcessFunction.class,
                        TwoInputNonBroadcastStreamProcessFunction.class,
                        TwoInputBroadcastStreamProcessFunction.class)) {
            contexts(function);
        }
        for (Map.Entry<String, Class<?>> stream : STREAMS.entrySet()) {
            for (Method method : methods(stream.getValue())) {
                for (Map.Entry<String, StateDeclaration> one : declared.entrySet()) {
                    ask(stream.getKey(), method, one.getKey(), one.getValue());
                }
            }
        }
    }

    private static Map<String, StateDeclaration> declarations() {
        Map<String, StateDeclaration> made = new LinkedHashMap<>();
        made.put("valueState", StateDeclarations.valueState("s", TypeDescriptors.LONG));
        made.put("listState", StateDeclarations.listState("s", TypeDescriptors.LONG));
        made.put(
                "mapState",
                StateDeclarations.mapState("s", TypeDescriptors.LONG, TypeDescriptors.LONG));
        made.put(
                "reducingState",
                StateDeclarations.reducingState("s", TypeDescriptors.LONG, Long::sum));
        made.put(
                "aggregatingState",
                StateDeclarations.aggregatingState("s", TypeDescriptors.LONG, new Sum()));
        for (RedistributionStrategy strategy : RedistributionStrategy.values()) {
            made.put(
                    "listStateBuilder.redistributeBy(" + strategy + ")",
                    StateDeclarations.listStateBuilder("s", TypeDescriptors.LONG)
                            .redistributeBy(strategy)
                            .build());
        }
        for (RedistributionMode mode : RedistributionMode.values()) {
            made.put(
                    "listStateBuilder.redistributeWithMode(" + mode + ")",
                    StateDeclarations.listStateBuilder("s", TypeDescriptors.LONG)
                            .redistributeWithMode(mode)
                            .build());
        }
        made.put(
                "mapStateBuilder.buildBroadcast",
                StateDeclarations.mapStateBuilder("s", TypeDescriptors.LONG, TypeDescriptors.LONG)
                        .buildBroadcast());
        return made;
    }

    /** Which context each method of a function is handed, and what that can do. */
    private static void contexts(Class<?> function) {
        Map<String, Class<?>> found = new TreeMap<>();
        for (Method method : function.getMethods()) {
            for (Class<?> type : method.getParameterTypes()) {
                if (NonPartitionedContext.class.isAssignableFrom(type)
                        || TwoOutputNonPartitionedContext.class.isAssignableFrom(type)
                        || BasePartitionedContext.class.isAssignableFrom(type)) {
                    found.put(method.getName(), type);
                }
            }
        }
        for (Map.Entry<String, Class<?>> one : found.entrySet()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("function", function.getSimpleName());
            line.put("method", one.getKey());
            line.put("context", one.getValue().getSimpleName());
            line.put("state_manager", has(one.getValue(), "getStateManager"));
            line.put("apply_to_all_partitions", has(one.getValue(), "applyToAllPartitions"));
            System.out.println(Json.of(line));
        }
    }

    private static boolean has(Class<?> type, String method) {
        return Stream.of(type.getMethods()).anyMatch(one -> one.getName().equals(method));
    }

    /** The methods that take a process function, in an order that does not change. */
    private static List<Method> methods(Class<?> stream) {
        return Stream.of(stream.getMethods())
                .filter(one -> one.getName().matches("process|connectAndProcess"))
                .filter(one -> !one.isBridge() && !one.isSynthetic())
                .sorted(Comparator.comparing(Method::toGenericString))
                .toList();
    }

    private static void ask(String stream, Method method, String name, StateDeclaration one)
            throws Exception {
        ExecutionEnvironment environment = ExecutionEnvironment.getInstance();
        List<String> inputs = new ArrayList<>(List.of(stream));
        Map<String, Object> line = new LinkedHashMap<>();
        Object[] given = new Object[method.getParameterCount()];
        int selectors = 0;
        for (int at = 0; at < given.length; at++) {
            Class<?> wanted = method.getParameterTypes()[at];
            if (wanted == KeySelector.class) {
                given[at] = new Same();
                selectors++;
                continue;
            }
            for (Object function : FUNCTIONS) {
                if (wanted.isInstance(function)) {
                    given[at] = function;
                    line.put("function", wanted.getSimpleName());
                }
            }
            for (Map.Entry<String, Class<?>> other : STREAMS.entrySet()) {
                if (wanted == other.getValue()) {
                    given[at] = stream(environment, other.getKey());
                    inputs.add(other.getKey());
                }
            }
            if (given[at] == null) {
                throw new IllegalStateException("nothing to give as " + wanted);
            }
        }
        line.put("inputs", new ArrayList<Object>(inputs));
        line.put("keyed_outputs", selectors);
        line.put("declared", name);
        used = Set.of(one);
        try {
            method.invoke(stream(environment, stream), given);
            line.put("legal", true);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof IllegalRedistributionModeException)) {
                throw error;
            }
            line.put("legal", false);
            line.put("said", error.getCause().getMessage());
        }
        System.out.println(Json.of(line));
    }

    private static Object stream(ExecutionEnvironment environment, String kind) {
        NonKeyedPartitionStream<Long> made =
                environment.fromSource(DataStreamV2SourceUtils.fromData(List.of(1L)), "source");
        return switch (kind) {
            case "Global" -> made.global();
            case "Keyed" -> made.keyBy(new Same());
            case "Broadcast" -> made.broadcast();
            default -> made;
        };
    }
}
