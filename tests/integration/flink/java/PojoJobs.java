import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/** POJOs as anyone writes them, with type information as Flink finds it: of some fields Kryo's. */
class PojoJobs {
    public static class Customer {
        public long id;
        public String name;
        public List<String> tags;
        public Map<String, Integer> scores;
        public Set<Long> seen;
        public UUID token;

        static Customer of(long k) {
            Customer made = new Customer();
            made.id = k;
            made.name = k % 7 == 0 ? null : "größe" + k;
            made.tags = k % 3 == 0 ? new LinkedList<>() : new ArrayList<>();
            made.scores = new HashMap<>();
            for (long i = 0; i < k % 4; i++) {
                made.tags.add(i == 2 ? "\"quoted\" \u2713" : "tag " + i);
                made.scores.put("s" + i, (int) (k * 100 - i));
            }
            made.seen = k % 5 == 0 ? null : new LinkedHashSet<>(Arrays.asList(k, -k, k << 40));
            made.token = k % 6 == 0 ? null : new UUID(k * 0x9E3779B97F4A7C15L, -k);
            return made;
        }

        @Override
        public String toString() {
            return id + " " + name + " " + tags + tags.getClass().getSimpleName()
                    + new TreeMap<>(scores) + seen + token;
        }
    }

    /** Equal to another one by its fields, as keys must be. */
    public static class Place {
        public String city;
        public UUID token;

        static Place of(long k) {
            Place made = new Place();
            made.city = "city " + k;
            made.token = new UUID(-k, k);
            return made;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Place && ((Place) other).city.equals(city)
                    && ((Place) other).token.equals(token);
        }

        @Override
        public int hashCode() {
            return Objects.hash(city, token.toString());
        }

        @Override
        public String toString() {
            return city + " " + token;
        }
    }

    /** With anything in its middle, sometimes of a class that only this job has. */
    public static class Odd {
        public long id;
        public Object middle;
        public String text;

        static Odd of(long k) {
            Odd made = new Odd();
            made.id = k + 1000;  // not its key, after whose bytes the heap format would be cut
            made.middle = k % 4 == 0 ? new Own(k) : k % 4 == 1 ? Collections.singletonList(k) : "m" + k;
            made.text = "after " + k;
            return made;
        }

        @Override
        public String toString() {
            return id + " " + middle + " " + text;
        }
    }

    static class Own {
        private long number;

        private Own() {}

        Own(long number) {
            this.number = number;
        }

        @Override
        public String toString() {
            return "own " + number;
        }
    }

    static void pojos(DataStream<Long> numbers, boolean restoring) {
        Jobs.finish(numbers.keyBy(k -> k).process(new Held(restoring))
                .uid("customers").name("customers"));
        Jobs.finish(numbers.keyBy(Place::of, TypeInformation.of(Place.class))
                .process(new Placed(restoring)).uid("places").name("places"));
    }

    static class Held extends KeyedProcessFunction<Long, Long, String> {
        private final boolean restoring;
        private transient ValueState<Customer> customer;
        private transient ListState<Customer> listed;
        private transient MapState<String, Customer> mapped;
        private transient ValueState<Tuple2<UUID, Long>> pair;
        private transient ValueState<Odd> odd;

        Held(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            customer = getRuntimeContext().getState(
                    new ValueStateDescriptor<>("customer", Customer.class));
            listed = getRuntimeContext().getListState(
                    new ListStateDescriptor<>("listed", Customer.class));
            mapped = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("mapped", String.class, Customer.class));
            pair = getRuntimeContext().getState(new ValueStateDescriptor<>(
                    "pair", TypeInformation.of(new TypeHint<Tuple2<UUID, Long>>() {})));
            odd = getRuntimeContext().getState(new ValueStateDescriptor<>("odd", Odd.class));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (!restoring) {
                customer.update(Customer.of(k));
                for (long i = 0; i < k % 3; i++) {
                    listed.add(Customer.of(k + i));
                    mapped.put("m" + i, Customer.of(k - i));
                }
                pair.update(Tuple2.of(new UUID(k, k), k));
                odd.update(Odd.of(k));
                Jobs.SEEN.incrementAndGet();
                return;
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("key", k);
            line.put("customer", String.valueOf(customer.value()));
            line.put("pair", String.valueOf(pair.value()));
            line.put("odd", String.valueOf(odd.value()));
            List<Object> all = new ArrayList<>();
            listed.get().forEach(one -> all.add(one.toString()));
            line.put("listed", all);
            Map<String, Object> entries = new TreeMap<>();
            for (Map.Entry<String, Customer> one : mapped.entries()) {
                entries.put(one.getKey(), one.getValue().toString());
            }
            line.put("mapped", entries);
            out.collect(Json.of(line));
        }
    }

    static class Placed extends KeyedProcessFunction<Place, Long, String> {
        private final boolean restoring;
        private transient ValueState<Long> number;

        Placed(boolean restoring) {
            this.restoring = restoring;
        }

        @Override
        public void open(OpenContext context) {
            number = getRuntimeContext().getState(new ValueStateDescriptor<>("number", Long.class));
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out) throws Exception {
            if (!restoring) {
                number.update(k);
                Jobs.SEEN.incrementAndGet();
                return;
            }
            Map<String, Object> line = new TreeMap<>();
            line.put("place", context.getCurrentKey().toString());
            line.put("number", number.value());
            out.collect(Json.of(line));
        }
    }
}
