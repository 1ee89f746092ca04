"""Types as users write them, drawn at random: a job of real Flink that holds values of each.

The job is Java source in place of `PojoJobs.java`. Flink finds the type information itself, so that
Flink 1 leaves to Kryo what it has no serializer for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

# of each: how a value is made of `r`, and the class as it is declared for Kryo
LEAVES = {
    "Long": "r.nextLong()",
    "Integer": "r.nextInt()",
    "String": "text(r)",
    "Double": "r.nextDouble()",
    "Boolean": "r.nextBoolean()",
    "UUID": "new UUID(r.nextLong(), r.nextLong())",
    "java.math.BigDecimal": "java.math.BigDecimal.valueOf(r.nextLong(), r.nextInt(9))",
    "java.math.BigInteger": "java.math.BigInteger.valueOf(r.nextLong())",
    "java.util.Date": "new java.util.Date(r.nextInt())",
    "java.time.LocalDate": "java.time.LocalDate.ofEpochDay(r.nextInt(90000))",
    "java.time.LocalDateTime": "java.time.LocalDateTime.of(2020, 1, 1, r.nextInt(24), 7)",
    "java.time.Duration": "java.time.Duration.ofMillis(r.nextInt())",
    "java.time.Instant": "java.time.Instant.ofEpochMilli(r.nextInt())",
    "java.util.BitSet": "java.util.BitSet.valueOf(new long[] {r.nextLong()})",
    "java.util.Currency": 'java.util.Currency.getInstance(r.nextBoolean() ? "EUR" : "JPY")',
    "java.net.URI": 'java.net.URI.create("http://host/" + r.nextInt(1000))',
    "Tier": "Tier.values()[r.nextInt(3)]",
    "int[]": "new int[] {r.nextInt(), r.nextInt()}",
    "byte[]": "new byte[] {(byte) r.nextInt(), 7}",
    "String[]": "new String[] {text(r), text(r)}",
    "Fraction": "Fraction.getFraction(r.nextInt(1000), 1 + r.nextInt(1000))",
}
AVRO = {"Visit": "Visit.of(r)"}  # a specific record, of which Kryo writes the fields
LIBRARY = {
    "org.apache.commons.lang3.math.Fraction": {
        "final": True,
        "fields": {"denominator": "int", "numerator": "int"},
    }
}
KEYS = ("String", "Long", "Integer", "UUID", "Tier")
COLLECTIONS = ("List", "Set", "Collection", "ArrayList", "LinkedList", "HashSet", "TreeSet")
SORTED = ("Long", "Integer", "String", "UUID", "Double")
MAPS = ("Map", "HashMap", "LinkedHashMap", "TreeMap", "SortedMap")
HASHABLE = tuple(name for name in LEAVES if "[]" not in name)
DEEPEST = 4


@dataclass(frozen=True)
class Drawn:
    """A type: its text in Java, and the expression of a value."""

    java: str
    value: str


@dataclass
class Types:
    """Types drawn at random, with the classes that they need.

    Attributes:
        random: Draws them.
        classes: The Java source of each class.
        declared: The fields of each class, as `--kryo` takes them.
        drawn: The types.
    """

    random: Random
    classes: list[str] = field(default_factory=list)
    declared: dict[str, Any] = field(default_factory=dict)
    drawn: list[Drawn] = field(default_factory=list)

    def draw(self, depth: int, *, kryo: bool) -> Drawn:
        """Draw a type; within Kryo without tuples, for which it has no form.

        Nor within Kryo an `Optional`: version 2.24 writes its value in a form that depends on the
        types of those that it wrote before.
        """
        kinds = ["leaf", "collection", "map", "pojo"] + ["tuple", "optional"] * (not kryo)
        kind = self.random.choice(kinds) if depth < DEEPEST else "leaf"
        if kind == "leaf":
            leaves = LEAVES if kryo else LEAVES | AVRO
            name = self.random.choice(list(leaves))
            return Drawn(name, leaves[name])
        if kind == "collection":
            return self._collection(depth)
        if kind == "map":
            return self._map(depth)
        if kind == "optional":
            name = self.random.choice(list(LEAVES))
            empty, full = f"Optional.<{name}>empty()", f"Optional.of({LEAVES[name]})"
            return Drawn(f"Optional<{name}>", f"(r.nextInt(3) == 0 ? {empty} : {full})")
        if kind == "tuple":
            one, two = self.draw(depth + 1, kryo=False), self.draw(depth + 1, kryo=False)
            return Drawn(f"Tuple2<{one.java}, {two.java}>", f"Tuple2.of({one.value}, {two.value})")
        return self._pojo(depth, kryo=kryo)

    def _collection(self, depth: int) -> Drawn:
        container = self.random.choice(COLLECTIONS)
        if container == "TreeSet":
            name = self.random.choice(SORTED)
            element = Drawn(name, LEAVES[name])
        elif "Set" in container:
            name = self.random.choice(HASHABLE)
            element = Drawn(name, LEAVES[name])
        else:
            element = self.draw(depth + 1, kryo=True)
        if container in ("List", "Collection"):
            return Drawn(f"{container}<{element.java}>", f"list(r, () -> {element.value})")
        made = {"Set": "HashSet"}
        return Drawn(
            f"{container}<{element.java}>",
            f"many(r, new {made.get(container, container)}<>(), () -> {element.value})",
        )

    def _map(self, depth: int) -> Drawn:
        container = self.random.choice(MAPS)
        is_sorted = container in ("TreeMap", "SortedMap")
        key = self.random.choice(("String", "Long") if is_sorted else KEYS)
        value = self.draw(depth + 1, kryo=True)
        made = {"Map": "HashMap", "SortedMap": "TreeMap"}.get(container, container)
        return Drawn(
            f"{container}<{key}, {value.java}>",
            f"map(r, new {made}<>(), () -> {LEAVES[key]}, () -> {value.value})",
        )

    def _pojo(self, depth: int, *, kryo: bool) -> Drawn:
        fields = [self.draw(depth + 1, kryo=kryo) for _ in range(self.random.randint(1, 4))]
        name = f"P{len(self.classes)}"
        declarations = "".join(f"public {each.java} f{at}; " for at, each in enumerate(fields))
        values = "".join(
            f"p.f{at} = r.nextInt(6) == 0 ? null : {each.value}; " for at, each in enumerate(fields)
        )
        self.classes.append(
            f"public static class {name} {{ public long id; {declarations}"
            f"static {name} of(Random r) {{ {name} p = new {name}(); p.id = r.nextLong(); {values}"
            "return p; } }"
        )
        self.declared[f"PojoJobs${name}"] = {
            "fields": {"id": "long"}
            | {f"f{at}": _kryo(each.java) for at, each in enumerate(fields)}
        }
        return Drawn(name, f"{name}.of(r)")


def _kryo(java: str) -> str:
    """Return a type as a declaration for Kryo has it: nested classes by their binary names."""
    words = "".join(
        letter if letter.isalnum() or letter in ".[]" else f" {letter} " for letter in java
    )
    named = [
        "org.apache.commons.lang3.math.Fraction"
        if word == "Fraction"
        else f"PojoJobs${word}"
        if word == "Tier" or (word[:1] == "P" and word[1:].isdecimal())
        else word
        for word in words.split()
    ]
    return "".join(named).replace(",", ", ")


def drawn_types(seed: int, count: int) -> Types:
    """Draw types."""
    types = Types(Random(seed))
    types.declared |= {"PojoJobs$Tier": {"enum": ["GOLD", "SILVER", "TIN"]}, **LIBRARY}
    while len(types.drawn) < count:
        types.drawn.append(types.draw(0, kryo=False))
    return types


def source_of(types: Types, keys: int) -> str:
    """Return the Java source of a job with a value, a list and a map state of each type.

    A third of them has time to live.
    It has operator state too, with elements of the first type.

    Args:
        types: The types.
        keys: The number of keys, from 0 on.
    """
    descriptors, writes, reads = [], [], []
    for at, each in enumerate(types.drawn):
        info = f"new TypeHint<{each.java}>() {{}}"
        live = "live" if at % 3 == 0 else "plain"
        descriptors.append(
            f"value{at} = getRuntimeContext().getState({live}(new ValueStateDescriptor<>("
            f'"value{at}", TypeInformation.of({info}))));\n'
            f"list{at} = getRuntimeContext().getListState({live}(new ListStateDescriptor<>("
            f'"list{at}", TypeInformation.of({info}))));\n'
            f"map{at} = getRuntimeContext().getMapState({live}(new MapStateDescriptor<>("
            f'"map{at}", Types.STRING, TypeInformation.of({info}))));'
        )
        writes.append(
            f"value{at}.update(of{at}(k, 0));"
            f" list{at}.add(of{at}(k, 1)); list{at}.add(of{at}(k, 2));"
            f' map{at}.put("one", of{at}(k, 3));'
        )
        reads.append(
            f'check(found, "value{at}", of{at}(k, 0), value{at}.value());\n'
            f"{{ int n = 1; for ({each.java} one : list{at}.get()) "
            f'check(found, "list{at}", of{at}(k, n++), one);'
            f' if (n != 3) found.add("list{at}: " + n); }}\n'
            f'check(found, "map{at}", of{at}(k, 3), map{at}.get("one"));'
        )
    fields = "\n".join(
        f"private transient ValueState<{each.java}> value{at};\n"
        f"private transient ListState<{each.java}> list{at};\n"
        f"private transient MapState<String, {each.java}> map{at};"
        for at, each in enumerate(types.drawn)
    )
    makers = "\n".join(
        f"static {each.java} of{at}(long k, int n) {{"
        f" Random r = new Random(k * 1000003 + n * 31 + {at}); return {each.value}; }}"
        for at, each in enumerate(types.drawn)
    )
    methods = "\n".join(
        f"private void open{at}() {{ {text} }}" for at, text in enumerate(descriptors)
    )
    methods += "\n".join(
        f"private void write{at}(long k) throws Exception {{ {text} }}"
        for at, text in enumerate(writes)
    )
    methods += "\n".join(
        f"private void read{at}(long k, List<Object> found) throws Exception {{ {text} }}"
        for at, text in enumerate(reads)
    )
    numbers = range(len(types.drawn))
    parts = {
        "KEYS": str(keys),
        "FIRST": types.drawn[0].java,
        "CLASSES": "\n".join(types.classes),
        "MAKERS": makers,
        "FIELDS": fields,
        "METHODS": methods,
        "OPEN": " ".join(f"open{at}();" for at in numbers),
        "WRITE": " ".join(f"write{at}(k);" for at in numbers),
        "READ": " ".join(f"read{at}(k, found);" for at in numbers),
    }
    return re.sub(r"/\*([A-Z]+)\*/", lambda found: parts[found[1]], TEMPLATE)


TEMPLATE = """
import java.util.*;
import java.util.function.Supplier;
import org.apache.avro.Schema;
import org.apache.avro.specific.SpecificRecordBase;
import org.apache.commons.lang3.math.Fraction;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

class PojoJobs {
    static final int KEYS = /*KEYS*/;
    static final int GROUPS = 5;
    static final java.time.Duration GAP = java.time.Duration.ofHours(1);

    public enum Tier { GOLD, SILVER, TIN }

    public static class Visit extends SpecificRecordBase {
        public static final Schema SCHEMA$ = new Schema.Parser().parse((
                "{'type': 'record', 'name': 'Visit', 'namespace': 'PojoJobs$', 'fields': ["
                + "{'name': 'id', 'type': 'long'}, {'name': 'page', 'type': 'string'},"
                + "{'name': 'spent', 'type': ['null', 'double']}]}").replace((char) 39, (char) 34));
        public long id;
        public CharSequence page;
        public Double spent;

        public static Schema getClassSchema() {
            return SCHEMA$;
        }

        static Visit of(Random r) {
            Visit made = new Visit();
            made.id = r.nextLong();
            made.page = text(r);
            made.spent = r.nextInt(3) == 0 ? null : (Double) r.nextDouble();
            return made;
        }

        @Override
        public Schema getSchema() {
            return SCHEMA$;
        }

        @Override
        public Object get(int field) {
            return field == 0 ? id : field == 1 ? page : spent;
        }

        @Override
        public void put(int field, Object value) {
            if (field == 0) {
                id = (Long) value;
            } else if (field == 1) {
                page = (CharSequence) value;
            } else {
                spent = (Double) value;
            }
        }
    }

    /*CLASSES*/

    /*MAKERS*/

    static String text(Random r) {
        return r.nextInt(4) == 0 ? "größe ✓ " + r.nextInt() : "word " + r.nextInt(100);
    }

    static <T, C extends Collection<T>> C many(Random r, C into, Supplier<T> of) {
        for (int i = r.nextInt(4); i > 0; i--) {
            into.add(of.get());
        }
        return into;
    }

    static <T> List<T> list(Random r, Supplier<T> of) {
        switch (r.nextInt(6)) {
            case 0:
                return Collections.emptyList();
            case 1:
                return Collections.singletonList(of.get());
            case 2:
                return Arrays.asList(of.get(), of.get());
            case 3:
                return many(r, new LinkedList<T>(Collections.singletonList(null)), of);
            default:
                return many(r, new ArrayList<T>(), of);
        }
    }

    static <K, V, M extends Map<K, V>> M map(Random r, M into, Supplier<K> key, Supplier<V> value) {
        for (int i = r.nextInt(4); i > 0; i--) {
            into.put(key.get(), value.get());
        }
        return into;
    }

    static <D extends StateDescriptor<?, ?>> D live(D descriptor) {
        descriptor.enableTimeToLive(
                StateTtlConfig.newBuilder(java.time.Duration.ofDays(1000)).build());
        return descriptor;
    }

    static <D extends StateDescriptor<?, ?>> D plain(D descriptor) {
        return descriptor;
    }

    /** Equal values have equal texts: sets and maps in the order of texts, POJOs field by field. */
    static String show(Object value) throws Exception {
        if (value == null) {
            return "null";
        }
        if (value.getClass().isArray()) {
            StringBuilder text = new StringBuilder("[");
            for (int i = 0; i < java.lang.reflect.Array.getLength(value); i++) {
                text.append(show(java.lang.reflect.Array.get(value, i))).append(";");
            }
            return text + "]";
        }
        if (value instanceof Collection) {
            List<String> all = new ArrayList<>();
            for (Object one : (Collection<?>) value) {
                all.add(show(one));
            }
            if (value instanceof Set) {
                Collections.sort(all);
            }
            return all.toString();
        }
        if (value instanceof Map) {
            TreeMap<String, String> all = new TreeMap<>();
            for (Map.Entry<?, ?> one : ((Map<?, ?>) value).entrySet()) {
                all.put(show(one.getKey()), show(one.getValue()));
            }
            return all.toString();
        }
        if (value instanceof Optional) {
            return "optional " + show(((Optional<?>) value).orElse(null));
        }
        if (value instanceof Tuple2) {
            Tuple2<?, ?> pair = (Tuple2<?, ?>) value;
            return "(" + show(pair.f0) + "," + show(pair.f1) + ")";
        }
        if (value.getClass().getName().startsWith("PojoJobs$P")) {
            StringBuilder text = new StringBuilder(value.getClass().getName());
            for (java.lang.reflect.Field field : value.getClass().getFields()) {
                text.append(" ").append(field.getName()).append("=").append(show(field.get(value)));
            }
            return text.toString();
        }
        return value.toString();
    }

    static void check(List<Object> found, String state, Object expected, Object value)
            throws Exception {
        if (!show(expected).equals(show(value))) {
            found.add(state + ": " + show(expected) + " became " + show(value));
        }
    }

    static void pojos(DataStream<Long> numbers, boolean restoring) {
        Jobs.finish(numbers.keyBy(k -> k).process(new Held(restoring)).uid("types").name("types"));
        TypeInformation<Tuple2<Long, /*FIRST*/>> type =
                TypeInformation.of(new TypeHint<Tuple2<Long, /*FIRST*/>>() {});
        DataStream<Tuple2<Long, /*FIRST*/>> all = numbers
                .map(k -> Tuple2.of(k, of0(k, 7))).returns(type)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<Tuple2<Long, /*FIRST*/>>noWatermarks()
                                .withTimestampAssigner((one, before) -> one.f0 * 1000));
        // when restoring, windows get nothing but what they had
        DataStream<Tuple2<Long, /*FIRST*/>> first =
                all.filter(one -> !restoring).returns(type);
        DataStream<Tuple2<Long, /*FIRST*/>> second =
                all.filter(one -> restoring).returns(type);
        TumblingEventTimeWindows days = TumblingEventTimeWindows.of(java.time.Duration.ofDays(1));
        EventTimeSessionWindows sessions = EventTimeSessionWindows.withGap(GAP);
        Jobs.finish(first.keyBy(one -> one.f0 % GROUPS, Types.LONG).window(days)
                .process(new Fired("tumbling"), Types.STRING).uid("tumbling"));
        Jobs.finish(first.keyBy(one -> one.f0 % GROUPS, Types.LONG).window(sessions)
                .process(new Fired("session"), Types.STRING).uid("session"));
        Jobs.finish(first.keyBy(one -> one.f0 % GROUPS, Types.LONG).window(sessions)
                .evictor(CountEvictor.of(1000))
                .process(new Fired("evicting"), Types.STRING).uid("evicting"));
        Jobs.finish(first.keyBy(one -> one.f0 % GROUPS, Types.LONG).window(sessions)
                .aggregate(new Tokens(), new Summed(), Types.GENERIC(UUID.class),
                        Types.GENERIC(UUID.class), Types.STRING).uid("aggregating"));
        DataStream<String> grouped = first.coGroup(first).where(one -> one.f0 % GROUPS, Types.LONG)
                .equalTo(one -> one.f0 % GROUPS, Types.LONG).window(days)
                .<String>apply((left, right, out) -> {
                    out.collect(line("left", left));
                    out.collect(line("right", right));
                }, Types.STRING);
        Jobs.finish(((SingleOutputStreamOperator<String>) grouped).uid("grouped"));
        Jobs.finish(first.keyBy(one -> one.f0, Types.LONG)
                .intervalJoin(second.keyBy(one -> one.f0, Types.LONG))
                .between(java.time.Duration.ofSeconds(-5), java.time.Duration.ofSeconds(5))
                .process(new Joined(), Types.STRING).uid("joined"));
        Jobs.finish(all.keyBy(one -> one.f0, Types.LONG).reduce((one, other) -> one).uid("reduced")
                .filter(one -> restoring).map(one -> line("reduced", Collections.singleton(one)))
                .returns(Types.STRING));
    }

    /** A line that says what is wrong in the elements of a group, or in one element. */
    static String line(String where, Iterable<Tuple2<Long, /*FIRST*/>> elements) throws Exception {
        List<Object> found = new ArrayList<>();
        TreeMap<Long, Object> held = new TreeMap<>();
        for (Tuple2<Long, /*FIRST*/> one : elements) {
            check(found, where, of0(one.f0, 7), one.f1);
            held.put(one.f0, one);
        }
        long group = held.isEmpty() ? -1 : held.firstKey() % GROUPS;
        if (!where.equals("reduced") && !where.equals("joined")
                && held.size() != (KEYS - group + GROUPS - 1) / GROUPS) {
            found.add(where + ": " + held.keySet());
        }
        Map<String, Object> line = new TreeMap<>();
        line.put("key", where + " " + held.firstKey());
        line.put("wrong", found);
        return Json.of(line);
    }

    static class Fired
            extends ProcessWindowFunction<Tuple2<Long, /*FIRST*/>, String, Long, TimeWindow> {
        private final String where;

        Fired(String where) {
            this.where = where;
        }

        @Override
        public void process(Long group, Context context,
                Iterable<Tuple2<Long, /*FIRST*/>> elements, Collector<String> out)
                throws Exception {
            out.collect(line(where, elements));
        }
    }

    static class Tokens implements AggregateFunction<Tuple2<Long, /*FIRST*/>, UUID, UUID> {
        @Override
        public UUID createAccumulator() {
            return new UUID(0, 0);
        }

        @Override
        public UUID add(Tuple2<Long, /*FIRST*/> one, UUID sum) {
            return merge(sum, new UUID(1L << one.f0, -one.f0));
        }

        @Override
        public UUID getResult(UUID sum) {
            return sum;
        }

        @Override
        public UUID merge(UUID one, UUID other) {
            return new UUID(one.getMostSignificantBits() | other.getMostSignificantBits(),
                    one.getLeastSignificantBits() + other.getLeastSignificantBits());
        }
    }

    static class Summed extends ProcessWindowFunction<UUID, String, Long, TimeWindow> {
        @Override
        public void process(
                Long group, Context context, Iterable<UUID> sums, Collector<String> out)
                throws Exception {
            Tokens tokens = new Tokens();
            UUID expected = tokens.createAccumulator();
            for (long k = group; k < KEYS; k += GROUPS) {
                expected = tokens.add(Tuple2.of(k, null), expected);
            }
            List<Object> found = new ArrayList<>();
            check(found, "aggregating", expected, sums.iterator().next());
            Map<String, Object> line = new TreeMap<>();
            line.put("key", "aggregating " + group);
            line.put("wrong", found);
            out.collect(Json.of(line));
        }
    }

    static class Joined extends ProcessJoinFunction<
            Tuple2<Long, /*FIRST*/>, Tuple2<Long, /*FIRST*/>, String> {
        @Override
        public void processElement(Tuple2<Long, /*FIRST*/> held, Tuple2<Long, /*FIRST*/> now,
                Context context, Collector<String> out) throws Exception {
            out.collect(line("joined", Collections.singleton(held)));
        }
    }

    static class Held extends KeyedProcessFunction<Long, Long, String>
            implements CheckpointedFunction {
        private final boolean restoring;
        private transient MapState<UUID, Long> byToken;
        private transient MapState<Tuple2<UUID, String>, Long> byPair;
        private transient BroadcastState<String, /*FIRST*/> rules;
        private transient BroadcastState<UUID, UUID> twins;
        private transient ListState<UUID> tokens;
        private transient ListState</*FIRST*/> parts;
        private transient boolean seen;
        /*FIELDS*/

        Held(boolean restoring) {
            this.restoring = restoring;
        }

        /*METHODS*/

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            tokens = context.getOperatorStateStore().getListState(
                    new ListStateDescriptor<>("tokens", UUID.class));
            parts = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>(
                    "parts", TypeInformation.of(new TypeHint</*FIRST*/>() {})));
            rules = context.getOperatorStateStore().getBroadcastState(new MapStateDescriptor<>(
                    "rules", Types.STRING,
                    TypeInformation.of(new TypeHint</*FIRST*/>() {})));
            twins = context.getOperatorStateStore().getBroadcastState(new MapStateDescriptor<>(
                    "twins", TypeInformation.of(UUID.class), TypeInformation.of(UUID.class)));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) {
        }

        @Override
        public void open(OpenContext context) {
            byToken = getRuntimeContext().getMapState(
                    new MapStateDescriptor<>("byToken", UUID.class, Long.class));
            byPair = getRuntimeContext().getMapState(new MapStateDescriptor<>("byPair",
                    TypeInformation.of(new TypeHint<Tuple2<UUID, String>>() {}), Types.LONG));
            /*OPEN*/
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            if (!restoring) {
                /*WRITE*/
                byToken.put(new UUID(k, -k), k);
                byToken.put(new UUID(-k, k), -k);
                byPair.put(Tuple2.of(new UUID(k, -k), "a"), k);
                byPair.put(Tuple2.of(new UUID(k, -k), "größe"), -k);
                for (long i = 0; i < 3; i++) { // the same in each subtask
                    rules.put("rule " + i, of0(i, 9));
                    twins.put(new UUID(-i, i), new UUID(i, -i));
                }
                tokens.add(new UUID(k, k));
                parts.add(of0(k, 5));
                Jobs.SEEN.addAndGet(2);
                return;
            }
            List<Object> found = new ArrayList<>();
            /*READ*/
            if (!seen) {
                seen = true;
                Set<String> all = new HashSet<>();
                for (/*FIRST*/ one : parts.get()) {
                    all.add(show(one));
                }
                for (long i = 0; i < KEYS; i++) {
                    if (!all.contains(show(of0(i, 5)))) {
                        found.add("parts: no " + show(of0(i, 5)));
                    }
                }
                for (UUID one : tokens.get()) {
                    check(found, "tokens", one, new UUID(one.getLeastSignificantBits(),
                            one.getMostSignificantBits()));
                }
            }
            for (long i = 0; i < 3; i++) {
                check(found, "rules", of0(i, 9), rules.get("rule " + i));
                check(found, "twins", new UUID(i, -i), twins.get(new UUID(-i, i)));
            }
            check(found, "byPair", Arrays.asList(k, -k), Arrays.asList(
                    byPair.get(Tuple2.of(new UUID(k, -k), "a")),
                    byPair.get(Tuple2.of(new UUID(k, -k), "größe"))));
            check(found, "byToken", Arrays.asList(k, -k),
                    Arrays.asList(byToken.get(new UUID(k, -k)), byToken.get(new UUID(-k, k))));
            Map<String, Object> line = new TreeMap<>();
            line.put("key", k);
            line.put("wrong", found);
            out.collect(Json.of(line));
        }
    }
}
"""
