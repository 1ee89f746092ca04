"""Types as users write them, drawn at random: a job of real Flink that holds values of each.

The job is Java source in place of `PojoJobs.java`. Flink finds the type information itself, so that
Flink 1 leaves to Kryo what it has no serializer for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

MATH = "org.apache.commons.math3"
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
    # classes of libraries, which Kryo writes field by field
    f"{MATH}.complex.Complex": f"new {MATH}.complex.Complex(r.nextInt(), r.nextDouble())",
    f"{MATH}.fraction.BigFraction": f"new {MATH}.fraction.BigFraction(r.nextLong(), 7L)",
}
# those of which Kryo 2.24 writes the fields, or a Java object, and Kryo 5 a form of its own
RENEWED = {
    "OptionalInt": "(r.nextInt(3) == 0 ? OptionalInt.empty() : OptionalInt.of(r.nextInt()))",
    "OptionalLong": "OptionalLong.of(r.nextLong())",
    "OptionalDouble": "OptionalDouble.of(r.nextDouble())",
    "java.time.ZonedDateTime": "java.time.ZonedDateTime.of(2024, 10, 27, r.nextInt(24), 7, 0, 0,"
    ' java.time.ZoneId.of(r.nextBoolean() ? "Europe/Berlin" : "+02:00"))',
    "java.time.ZoneId": 'java.time.ZoneId.of(r.nextBoolean() ? "Asia/Tokyo" : "Z")',
    "java.util.Locale": "(r.nextBoolean() ? java.util.Locale.GERMANY : java.util.Locale.FRENCH)",
}
LIBRARIES = {
    f"{MATH}.complex.Complex": {"fields": {"imaginary": "double", "real": "double"}},
    f"{MATH}.fraction.BigFraction": {
        "fields": {"numerator": "java.math.BigInteger", "denominator": "java.math.BigInteger"}
    },
}
# what has a serializer of Flink's in both versions, unless it is within a value of Kryo's
OF_FLINK = {"Reading": "Reading.of(r)"}
KEYS = ("String", "Long", "Integer", "UUID", "Tier")
COLLECTIONS = ("List", "Set", "Collection", "ArrayList", "LinkedList", "HashSet", "TreeSet")
SORTED = ("Long", "Integer", "String", "UUID", "Double")
MAPS = ("Map", "HashMap", "LinkedHashMap", "TreeMap", "SortedMap")
HASHABLE = tuple(name for name in LEAVES if "[]" not in name)
DEEPEST = 4
DECLARED = {
    "PojoJobs$Tier": {"enum": ["GOLD", "SILVER", "TIN"]},
    "PojoJobs$Span": {"fields": {"from": "long", "until": "long", "kind": "UUID"}, "final": True},
}


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
        leaves: The types without others within them.
        in_windows: The type of what windows hold.
    """

    random: Random
    classes: list[str] = field(default_factory=list)
    declared: dict[str, Any] = field(default_factory=dict)
    drawn: list[Drawn] = field(default_factory=list)
    leaves: dict[str, str] = field(default_factory=lambda: LEAVES)
    in_windows: Drawn = field(default_factory=lambda: Drawn("UUID", LEAVES["UUID"]))

    def draw(self, depth: int, *, kryo: bool) -> Drawn:
        """Draw a type; within Kryo without tuples, for which it has no form.

        Nor within Kryo an `Optional`: version 2.24 writes its value in a form that depends on the
        types of those that it wrote before.
        """
        kinds = ["leaf", "collection", "map", "pojo"] + ["tuple", "optional"] * (not kryo)
        kind = self.random.choice(kinds) if depth < DEEPEST else "leaf"
        if kind == "leaf":
            leaves = self.leaves if kryo else self.leaves | OF_FLINK
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
        f"PojoJobs${word}" if word == "Tier" or (word[:1] == "P" and word[1:].isdecimal()) else word
        for word in words.split()
    ]
    return "".join(named).replace(",", ", ")


def drawn_types(seed: int, count: int, leaves: dict[str, str] = LEAVES) -> Types:
    """Draw types."""
    types = Types(Random(seed), leaves=leaves)
    types.declared |= LIBRARIES | DECLARED
    while len(types.drawn) < count:
        types.drawn.append(types.draw(0, kryo=False))
    types.in_windows = types.draw(1, kryo=True)
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
        "HELD": types.in_windows.java,
        "VALUE": types.in_windows.value,
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
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeinfo.TypeHint;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.api.java.typeutils.TupleTypeInfo;
import org.apache.flink.formats.avro.typeutils.GenericRecordAvroTypeInfo;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.ProcessFunction;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.*;
import org.apache.flink.streaming.api.windowing.evictors.CountEvictor;
import org.apache.flink.streaming.api.windowing.triggers.*;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.util.Collector;

class PojoJobs {
    static final int KEYS = /*KEYS*/;
    static final java.time.Duration SECONDS_5 = java.time.Duration.ofSeconds(5);
    static final java.time.Duration HOUR = java.time.Duration.ofHours(1);

    public enum Tier { GOLD, SILVER, TIN }

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

    /**
     * Equal values of the same class have equal texts: sets and maps in the order of texts, POJOs
     * field by field.
     */
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
        return value.getClass().getName() + " " + value;
    }

    static void check(List<Object> found, String state, Object expected, Object value)
            throws Exception {
        if (!show(expected).equals(show(value))) {
            found.add(state + ": " + show(expected) + " became " + show(value));
        }
    }

    static void pojos(DataStream<Long> numbers, boolean restoring) {
        Jobs.finish(numbers.keyBy(k -> k).process(new Held(restoring)).uid("types").name("types"));
        windows(numbers, restoring);
    }

    /** A record of Avro, as its compiler makes it. */
    public static class Reading extends org.apache.avro.specific.SpecificRecordBase {
        public static final Schema SCHEMA$ = schema("Reading", "{'name':'at','type':'long'},"
                + "{'name':'place','type':['null',{'type':'string','avro.java.string':'String'}]},"
                + "{'name':'values','type':{'type':'array','items':'double'}}");
        public long at;
        public String place;
        public List<Double> values;

        static Reading of(Random r) {
            Reading made = new Reading();
            made.at = r.nextLong();
            made.place = r.nextInt(3) == 0 ? null : text(r);
            made.values = new ArrayList<>(Arrays.asList(r.nextDouble(), r.nextDouble()));
            return made;
        }

        @Override
        public Schema getSchema() {
            return SCHEMA$;
        }

        @Override
        public Object get(int field) {
            return field == 0 ? (Object) at : field == 1 ? place : values;
        }

        @Override
        @SuppressWarnings("unchecked")
        public void put(int field, Object value) {
            if (field == 0) {
                at = (Long) value;
            } else if (field == 1) {
                place = value == null ? null : value.toString();
            } else {
                values = (List<Double>) value;
            }
        }
    }

    static final Schema GENERIC = schema(
            "Generic", "{'name':'id','type':'long'},{'name':'name','type':'string'}");

    static Schema schema(String name, String fields) {
        String text = "{'type':'record','namespace':'PojoJobs$','name':'" + name + "','fields':["
                + fields + "]}";
        return new Schema.Parser().parse(text.replace((char) 39, (char) 34));
    }

    static GenericRecord generic(long k) {
        GenericRecord made = new GenericData.Record(GENERIC);
        made.put("id", k);
        made.put("name", new org.apache.avro.util.Utf8("größe " + k));
        return made;
    }

    /** A window that Kryo writes. */
    public static final class Span extends Window {
        private final long from;
        private final long until;
        private final UUID kind = new UUID(7, 11); // Kryo 5 writes it in another way

        Span(long from, long until) {
            this.from = from;
            this.until = until;
        }

        @Override
        public long maxTimestamp() {
            return until - 1;
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Span && ((Span) other).from == from
                    && ((Span) other).until == until && kind.equals(((Span) other).kind);
        }

        @Override
        public int hashCode() {
            return Long.hashCode(from * 31 + until);
        }
    }

    /** Sessions that end five seconds behind their last element, and Kryo writes them. */
    static class Spans extends MergingWindowAssigner<Object, Span> {
        @Override
        public Collection<Span> assignWindows(
                Object element, long at, WindowAssignerContext context) {
            return Collections.singletonList(new Span(at, at + 5000));
        }

        public Trigger<Object, Span> getDefaultTrigger(StreamExecutionEnvironment env) {
            return new AtEnd();
        }

        public Trigger<Object, Span> getDefaultTrigger() {
            return new AtEnd();
        }

        @Override
        public TypeSerializer<Span> getWindowSerializer(ExecutionConfig config) {
            return new GenericTypeInfo<>(Span.class).createSerializer(config.getSerializerConfig());
        }

        @Override
        public boolean isEventTime() {
            return true;
        }

        @Override
        public void mergeWindows(Collection<Span> all, MergeCallback<Span> merged) {
            List<Span> sorted = new ArrayList<>(all);
            sorted.sort(Comparator.comparing(span -> span.from));
            List<Span> group = new ArrayList<>();
            long until = Long.MIN_VALUE;
            for (Span span : sorted) {
                if (!group.isEmpty() && span.from > until) {
                    finish(group, until, merged);
                    group = new ArrayList<>();
                    until = Long.MIN_VALUE;
                }
                group.add(span);
                until = Math.max(until, span.until);
            }
            finish(group, until, merged);
        }

        private void finish(List<Span> group, long until, MergeCallback<Span> merged) {
            if (group.size() > 1) {
                merged.merge(group, new Span(group.get(0).from, until));
            }
        }
    }

    static class AtEnd extends Trigger<Object, Span> {
        @Override
        public TriggerResult onElement(Object one, long at, Span span, TriggerContext context) {
            context.registerEventTimeTimer(span.maxTimestamp());
            return TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onEventTime(long time, Span span, TriggerContext context) {
            return time == span.maxTimestamp() ? TriggerResult.FIRE : TriggerResult.CONTINUE;
        }

        @Override
        public TriggerResult onProcessingTime(long time, Span span, TriggerContext context) {
            return TriggerResult.CONTINUE;
        }

        @Override
        public void clear(Span span, TriggerContext context) throws Exception {
            context.deleteEventTimeTimer(span.maxTimestamp());
        }

        @Override
        public boolean canMerge() {
            return true;
        }

        @Override
        public void onMerge(Span span, OnMergeContext context) {
            context.registerEventTimeTimer(span.maxTimestamp());
        }
    }

    /** What an accumulator holds, all of which Flink 1 leaves to Kryo. */
    public static class Sum {
        public ArrayList</*HELD*/> all = new ArrayList<>();
        public List<String> texts = new ArrayList<>();
        public UUID last;
    }

    static class Adding implements AggregateFunction<Tuple2<Long, /*HELD*/>, Sum, Sum> {
        @Override
        public Sum createAccumulator() {
            return new Sum();
        }

        @Override
        public Sum add(Tuple2<Long, /*HELD*/> one, Sum sum) {
            sum.all.add(one.f1);
            sum.texts.add("word");
            sum.last = new UUID(one.f0, one.f0);
            return sum;
        }

        @Override
        public Sum getResult(Sum sum) {
            return sum;
        }

        @Override
        public Sum merge(Sum one, Sum other) {
            one.all.addAll(other.all);
            one.texts.addAll(other.texts);
            return one;
        }
    }

    static /*HELD*/ held(long k, int n) {
        Random r = new Random(k * 77 + n);
        return /*VALUE*/;
    }

    static void report(String of, long k, Object expected, Object value, Collector<String> out)
            throws Exception {
        List<Object> found = new ArrayList<>();
        check(found, of, expected, value);
        Map<String, Object> line = new TreeMap<>();
        line.put("of", of);
        line.put("key", k);
        line.put("wrong", found);
        out.collect(Json.of(line));
    }

    /** What a window held, in the order of texts, as merging has none. */
    static List<String> texts(Iterable<?> all) throws Exception {
        List<String> texts = new ArrayList<>();
        for (Object one : all) {
            texts.add(show(one));
        }
        Collections.sort(texts);
        return texts;
    }

    static List<Object> expected(long k, int... numbers) {
        List<Object> all = new ArrayList<>();
        for (int n : numbers) {
            all.add(held(k, n));
        }
        return all;
    }

    static class Summed<W extends Window> extends ProcessWindowFunction<Sum, String, Long, W> {
        private final String of;

        Summed(String of) {
            this.of = of;
        }

        @Override
        public void process(Long k, Context context, Iterable<Sum> sums, Collector<String> out)
                throws Exception {
            Sum sum = sums.iterator().next();
            List<Object> all = sum.all.size() == 1 ? expected(k, 2) : expected(k, 0, 1, 3);
            report(of, k, Arrays.asList(texts(all), all.size(), new UUID(k, k)),
                    Arrays.asList(texts(sum.all), sum.texts.size(), sum.last), out);
        }
    }

    static class Listed<K, W extends Window>
            extends ProcessWindowFunction<Tuple2<Long, /*HELD*/>, String, K, W> {
        private final String of;

        Listed(String of) {
            this.of = of;
        }

        @Override
        public void process(K key, Context context, Iterable<Tuple2<Long, /*HELD*/>> held,
                Collector<String> out) throws Exception {
            listed(of, held, out);
        }
    }

    static void listed(String of, Iterable<Tuple2<Long, /*HELD*/>> held, Collector<String> out)
            throws Exception {
        long k = held.iterator().next().f0;
        List<Object> all = new ArrayList<>();
        for (Tuple2<Long, /*HELD*/> one : held) {
            all.add(one.f1);
        }
        int[] numbers = of.equals("global") ? new int[] {0, 1, 2, 3}
                : all.size() == 1 ? new int[] {2} : new int[] {0, 1, 3};
        report(of, k, texts(expected(k, numbers)), texts(all), out);
    }

    /** Three elements of each key, and a fourth one when restoring, which joins the first two. */
    static void windows(DataStream<Long> numbers, boolean restoring) {
        KeyedStream<Tuple2<Long, /*HELD*/>, Long> held = numbers
                .flatMap((FlatMapFunction<Long, Tuple2<Long, Integer>>) (k, out) -> {
                    for (int n = restoring ? 3 : 0; n < (restoring ? 4 : 3); n++) {
                        out.collect(Tuple2.of(k, n));
                    }
                }).returns(Types.TUPLE(Types.LONG, Types.INT))
                .assignTimestampsAndWatermarks(WatermarkStrategy
                        .<Tuple2<Long, Integer>>noWatermarks().withTimestampAssigner(
                                (one, before) -> new long[] {0, 1000, 10_000_000, 2000}[one.f1]))
                .map(one -> Tuple2.of(one.f0, held(one.f0, one.f1)))
                .returns(new TypeHint<Tuple2<Long, /*HELD*/>>() {})
                .keyBy(one -> one.f0, Types.LONG);
        Jobs.finish(held.window(EventTimeSessionWindows.withGap(SECONDS_5))
                .aggregate(new Adding(), new Summed<>("sessions")).uid("sessions"));
        Jobs.finish(held.window(TumblingEventTimeWindows.of(HOUR))
                .process(new Listed<>("hours")).uid("hours"));
        Jobs.finish(held.window(GlobalWindows.create())
                .trigger(PurgingTrigger.of(CountTrigger.of(4)))
                .process(new Listed<>("global")).uid("global"));
        Jobs.finish(held.window(new Spans())
                .aggregate(new Adding(), new Summed<>("spans")).uid("spans"));
        Jobs.finish(held.keyBy(one -> "key " + one.f0, Types.STRING).window(new Spans())
                .process(new Listed<>("listed")).uid("listed"));
        Jobs.finish(held.window(TumblingEventTimeWindows.of(HOUR)).evictor(CountEvictor.of(1000))
                .process(new Listed<>("evicting")).uid("evicting"));
        DataStream<String> grouped = held.coGroup(held).where(one -> one.f0, Types.LONG)
                .equalTo(one -> one.f0, Types.LONG).window(TumblingEventTimeWindows.of(HOUR))
                .apply((one, other, out) -> {
                    listed("grouped", one, out);
                    listed("grouped", other, out);
                }, Types.STRING);
        Jobs.finish(((SingleOutputStreamOperator<String>) grouped).uid("grouped"));
        KeyedStream<Tuple2<Long, /*HELD*/>, Long> later = held.filter(one -> restoring)
                .keyBy(one -> one.f0, Types.LONG);
        // the one that comes when restoring meets the first two
        Jobs.finish(held.filter(one -> !restoring).keyBy(one -> one.f0, Types.LONG)
                .intervalJoin(later).between(SECONDS_5.negated(), SECONDS_5)
                .process(new Joined()).uid("joined"));
        Jobs.finish(held.reduce((one, other) -> one).uid("reduced").filter(one -> restoring)
                .process(new Reduced()));
    }

    static class Joined extends
            ProcessJoinFunction<Tuple2<Long, /*HELD*/>, Tuple2<Long, /*HELD*/>, String> {
        @Override
        public void processElement(Tuple2<Long, /*HELD*/> one, Tuple2<Long, /*HELD*/> other,
                Context context, Collector<String> out) throws Exception {
            int n = (int) (context.getLeftTimestamp() / 1000);
            report("joined", one.f0, held(one.f0, n), one.f1, out);
        }
    }

    static class Reduced extends ProcessFunction<Tuple2<Long, /*HELD*/>, String> {
        @Override
        public void processElement(
                Tuple2<Long, /*HELD*/> one, Context context, Collector<String> out)
                throws Exception {
            report("reduced", one.f0, held(one.f0, 0), one.f1, out);
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
        private transient ValueState<org.apache.commons.math3.complex.Complex> library;
        private transient ValueState<GenericRecord> generic;
        private transient ListState<Tuple2<GenericRecord, UUID>> generics;
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
            library = getRuntimeContext().getState(new ValueStateDescriptor<>(
                    "library", org.apache.commons.math3.complex.Complex.class));
            generic = getRuntimeContext().getState(new ValueStateDescriptor<>(
                    "generic", new GenericRecordAvroTypeInfo(GENERIC)));
            generics = getRuntimeContext().getListState(new ListStateDescriptor<>("generics",
                    new TupleTypeInfo<Tuple2<GenericRecord, UUID>>(
                            new GenericRecordAvroTypeInfo(GENERIC),
                            TypeInformation.of(UUID.class))));
            /*OPEN*/
        }

        @Override
        public void processElement(Long k, Context context, Collector<String> out)
                throws Exception {
            if (!restoring) {
                /*WRITE*/
                library.update(new org.apache.commons.math3.complex.Complex(k, -k));
                generic.update(generic(k));
                generics.add(Tuple2.of(generic(k + 1), new UUID(k, 1)));
                generics.add(Tuple2.of(generic(k + 2), new UUID(k, 2)));
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
            check(found, "library", new org.apache.commons.math3.complex.Complex(k, -k),
                    library.value());
            check(found, "generic", generic(k), generic.value());
            List<Object> pairs = new ArrayList<>();
            generics.get().forEach(pairs::add);
            check(found, "generics", Arrays.asList(Tuple2.of(generic(k + 1), new UUID(k, 1)),
                    Tuple2.of(generic(k + 2), new UUID(k, 2))), pairs);
            Map<String, Object> line = new TreeMap<>();
            line.put("of", "types");
            line.put("key", k);
            line.put("wrong", found);
            out.collect(Json.of(line));
        }
    }
}
"""
