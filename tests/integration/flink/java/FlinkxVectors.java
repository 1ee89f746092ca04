import java.lang.reflect.Constructor;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.base.BigDecSerializer;
import org.apache.flink.api.common.typeutils.base.BigIntSerializer;
import org.apache.flink.api.common.typeutils.base.DoubleSerializer;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.common.typeutils.base.array.BytePrimitiveArraySerializer;
import org.apache.flink.api.java.typeutils.runtime.NullableSerializer;
import org.apache.flinkx.api.mapper.BigDecMapper;
import org.apache.flinkx.api.mapper.BigIntMapper;
import org.apache.flinkx.api.mapper.UuidMapper;
import org.apache.flinkx.api.serializer.ArraySerializer;
import org.apache.flinkx.api.serializer.CoproductSerializer;
import org.apache.flinkx.api.serializer.DefaultStringOrderingSerializer$;
import org.apache.flinkx.api.serializer.DurationSerializer$;
import org.apache.flinkx.api.serializer.EitherSerializer;
import org.apache.flinkx.api.serializer.FiniteDurationSerializer$;
import org.apache.flinkx.api.serializer.ListCCSerializer;
import org.apache.flinkx.api.serializer.ListSerializer;
import org.apache.flinkx.api.serializer.MapSerializer;
import org.apache.flinkx.api.serializer.MappedSerializer;
import org.apache.flinkx.api.serializer.MutableArrayDequeSerializer;
import org.apache.flinkx.api.serializer.MutableBufferSerializer;
import org.apache.flinkx.api.serializer.MutableMapSerializer;
import org.apache.flinkx.api.serializer.MutableQueueSerializer;
import org.apache.flinkx.api.serializer.MutableSetSerializer;
import org.apache.flinkx.api.serializer.MutableSortedMapSerializer;
import org.apache.flinkx.api.serializer.MutableSortedSetSerializer;
import org.apache.flinkx.api.serializer.NothingSerializer;
import org.apache.flinkx.api.serializer.OffsetDateTimeSerializer$;
import org.apache.flinkx.api.serializer.OptionOrderingSerializer;
import org.apache.flinkx.api.serializer.OptionSerializer;
import org.apache.flinkx.api.serializer.ReverseOrderingSerializer;
import org.apache.flinkx.api.serializer.ScalaCaseObjectSerializer;
import org.apache.flinkx.api.serializer.SeqSerializer;
import org.apache.flinkx.api.serializer.SetSerializer;
import org.apache.flinkx.api.serializer.SortedMapSerializer;
import org.apache.flinkx.api.serializer.SortedSetSerializer;
import org.apache.flinkx.api.serializer.UnitSerializer;
import org.apache.flinkx.api.serializer.VectorSerializer;
import org.apache.flinkx.api.serializer.ZoneIdSerializer$;
import org.apache.flinkx.api.serializer.ZoneOffsetSerializer$;
import org.apache.flinkx.api.serializer.ZonedDateTimeSerializer$;
import scala.Option;
import scala.Product;
import scala.Some;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.JavaConverters;
import scala.collection.mutable.Buffer;
import scala.concurrent.duration.Duration;
import scala.concurrent.duration.FiniteDuration;
import scala.math.Ordering;
import scala.runtime.BoxedUnit;
import scala.util.Left;
import scala.util.Right;

/**
 * Types of flink-scala-api. The word says of which versions: `first` is up to 1.2.4, `middle` 1.2.9,
 * `last` since 2.2.4.
 *
 * <pre>
 * javac -cp FLINK:FLINK-SCALA-API -d OUT FlinkxVectors.java Vectors.java Json.java
 * java -cp FLINK:FLINK-SCALA-API:OUT FlinkxVectors last > flinkx.jsonl
 * </pre>
 */
public class FlinkxVectors extends Vectors {
    private static final TypeSerializer<String> TEXT = StringSerializer.INSTANCE;
    private static final TypeSerializer<Long> LONG = LongSerializer.INSTANCE;
    private static final TypeSerializer<Integer> INT = IntSerializer.INSTANCE;
    private static final Option<String> NONE = Option.empty();
    private static boolean nulls;

    public static void main(String[] args) throws Exception {
        nulls = !args[0].equals("first");
        caseClasses();
        sealed(args[0].equals("last"));
        options();
        collections();
        mapped();
        verdicts();
        if (args[0].equals("last")) {
            Newer.mutable();
            Newer.sorted();
            Newer.times();
            if (there("Scala3EnumSerializer")) {
                enums();
            }
        }
    }

    private static boolean there(String serializer) {
        try {
            Class.forName("org.apache.flinkx.api.serializer." + serializer);
            return true;
        } catch (ClassNotFoundException none) {
            return false;
        }
    }

    // --------------------------------------------------------------------------- case classes

    /** As Scala compiles a case class, as far as a serializer asks. */
    public abstract static class Case implements Product {
        private final Object[] parts;

        Case(Object... parts) {
            this.parts = parts;
        }

        @Override
        public Object productElement(int at) {
            return parts[at];
        }

        @Override
        public int productArity() {
            return parts.length;
        }

        @Override
        public boolean canEqual(Object other) {
            return true;
        }
    }

    /** A click of a page. */
    public static final class Click extends Case {
        Click(String id, long at) {
            super(id, at);
        }
    }

    /** A purchase. */
    public static final class Purchase extends Case {
        Purchase(double price) {
            super(price);
        }
    }

    /** A case class without fields. */
    public static final class Nobody extends Case {
        Nobody() {
            super();
        }
    }

    /** A case class that has another. */
    public static final class Visit extends Case {
        Visit(Click first, scala.collection.immutable.List<Click> others) {
            super(first, others);
        }
    }

    /** A case object. */
    public static final class Closed$ {
        public static final Closed$ MODULE$ = new Closed$();
    }

    /** Another one. */
    public static final class Open$ {
        public static final Open$ MODULE$ = new Open$();
    }

    private static TypeSerializer<?> caseClass(Class<?> type, TypeSerializer<?>... fields) throws Exception {
        String name = "org.apache.flinkx.api.serializer." + (nulls ? "CaseClassSerializer" : "ScalaCaseClassSerializer");
        Constructor<?> constructor = Class.forName(name).getConstructors()[0];
        return (TypeSerializer<?>) (nulls ? constructor.newInstance(type, fields, true) : constructor.newInstance(type, fields));
    }

    private static TypeSerializer<?> click() throws Exception {
        return caseClass(Click.class, TEXT, LONG);
    }

    private static Value[] values(Value... values) {
        return values;
    }

    private static Value[] withNull(Value... values) {
        List<Value> all = new ArrayList<>(Arrays.asList(values));
        if (nulls) {
            all.add(value(null, null));
        }
        return all.toArray(Value[]::new);
    }

    /** Hash codes since Scala 2.13; a job of versions before 1.2.7 may have another Scala. */
    private static Value pairOf(Object first, Object second) {
        return new Value(new Tuple2<>(first, second), fields("f0", first, "f1", second), nulls);
    }

    private static void caseClasses() throws Exception {
        type("Tuple2<String, Long>", caseClass(Tuple2.class, TEXT, LONG), withNull(pairOf("a", 1L), pairOf("", 5_000_000_000L)));
        type("Tuple2<Int, Double>", caseClass(Tuple2.class, INT, DoubleSerializer.INSTANCE), withNull(pairOf(-3, 2.0),
                pairOf(0, -0.5), pairOf(1, 0.1)));
        type("Tuple3<String, Long, Int>", caseClass(Tuple3.class, TEXT, LONG, INT),
                new Value(new Tuple3<>("x", 2L, 3), fields("f0", "x", "f1", 2L, "f2", 3), nulls));
        type("Click", click(), withNull(value(new Click("c", 7L), fields("f0", "c", "f1", 7L)),
                value(new Click(null, -1L), fields("f0", null, "f1", -1L))));
        type("Purchase", caseClass(Purchase.class, DoubleSerializer.INSTANCE),
                withNull(value(new Purchase(2.5), fields("f0", 2.5))));
        type("Nobody", caseClass(Nobody.class), withNull(value(new Nobody(), true)));
        type("Visit", visit(), withNull(
                value(new Visit(new Click("a", 1L), list(new Click("b", 2L), new Click("c", 3L))), fields("f0",
                        fields("f0", "a", "f1", 1L), "f1", List.of(fields("f0", "b", "f1", 2L), fields("f0", "c", "f1", 3L))))));
        if (nulls) {
            type("Visits", new ListSerializer(visit(), Visit.class), value(list(new Visit(null, list()),
                    new Visit(new Click("a", 1L), list(new Click[] {null}))), List.of(fields("f0", null, "f1", List.of()),
                    fields("f0", fields("f0", "a", "f1", 1L), "f1", Arrays.asList((Object) null)))));
        }
        type("Click with one more", caseClass(Click.class, TEXT, LONG, INT));
        type("Nullable field", caseClass(Purchase.class, NullableSerializer.wrap(DoubleSerializer.INSTANCE, true)),
                value(new Case(new Object[] {null}) { }, fields("f0", null)));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static TypeSerializer<?> visit() throws Exception {
        return caseClass(Visit.class, click(), new ListSerializer(click(), Click.class));
    }

    // -------------------------------------------------------------------------- sealed traits

    private static TypeSerializer<?> event() throws Exception {
        return new CoproductSerializer<>(new Class<?>[] {Click.class, Purchase.class, Closed$.class},
                new TypeSerializer<?>[] {click(), caseClass(Purchase.class, DoubleSerializer.INSTANCE),
                        new ScalaCaseObjectSerializer<>(Closed$.class)});
    }

    private static Object typed(String name, Object click, Object purchase) {
        return fields("type", name, "Click", click, "Purchase", purchase);
    }

    private static Value[] events() {
        return values(value(new Click("c", 7L), typed("Click", fields("f0", "c", "f1", 7L), null)),
                value(new Purchase(9.5), typed("Purchase", null, fields("f0", 9.5))),
                value(Closed$.MODULE$, typed("Closed", null, null)));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void sealed(boolean last) throws Exception {
        List<Value> some = new ArrayList<>(Arrays.asList(events()));
        if (last) {
            some.add(value(null, null));
        }
        type("Event", event(), some.toArray(Value[]::new));
        type("Door", new CoproductSerializer<>(new Class<?>[] {Closed$.class, Open$.class}, new TypeSerializer<?>[] {
                new ScalaCaseObjectSerializer<>(Closed$.class), new ScalaCaseObjectSerializer<>(Open$.class)}),
                value(Open$.MODULE$, "Open"), value(Closed$.MODULE$, "Closed"));
        type("Door of another order", new CoproductSerializer<>(new Class<?>[] {Open$.class, Closed$.class},
                new TypeSerializer<?>[] {new ScalaCaseObjectSerializer<>(Open$.class),
                        new ScalaCaseObjectSerializer<>(Closed$.class)}));
        type("Closed", new ScalaCaseObjectSerializer<>(Closed$.class), value(Closed$.MODULE$, true));
        type("Events", new ListSerializer(event(), Object.class), value(list(new Purchase(1.5), Closed$.MODULE$,
                new Click("d", 8L)), List.of(typed("Purchase", null, fields("f0", 1.5)), typed("Closed", null, null),
                typed("Click", fields("f0", "d", "f1", 8L), null))));
        type("Event without Closed", new CoproductSerializer<>(new Class<?>[] {Click.class, Purchase.class},
                new TypeSerializer<?>[] {click(), caseClass(Purchase.class, DoubleSerializer.INSTANCE)}));
        type("Event of another order", new CoproductSerializer<>(new Class<?>[] {Purchase.class, Click.class, Closed$.class},
                new TypeSerializer<?>[] {caseClass(Purchase.class, DoubleSerializer.INSTANCE), click(),
                        new ScalaCaseObjectSerializer<>(Closed$.class)}));
        type("Equally long", new CoproductSerializer<>(new Class<?>[] {Long.class, Double.class},
                new TypeSerializer<?>[] {LONG, DoubleSerializer.INSTANCE}),
                value(4L, fields("type", "Long", "Long", 4L, "Double", null)));
    }

    // ------------------------------------------------------------------- options, collections

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void options() throws Exception {
        type("Option<String>", new OptionSerializer<>(TEXT), value(new Some<>("a"), "a"), value(NONE, null),
                value(new Some<>(null), null));
        type("Option<Long>", new OptionSerializer<>(LONG), value(new Some<>(1L), 1L), value(Option.empty(), null));
        type("Either<String, Long>", new EitherSerializer<>(TEXT, LONG),
                value(new Left<>("a"), fields("is_left", true, "left", "a", "right", null)),
                value(new Right<>(2L), fields("is_left", false, "left", null, "right", 2L)));
        type("Either<Long, Double>", new EitherSerializer<>(LONG, DoubleSerializer.INSTANCE),
                value(new Left<>(2L), fields("is_left", true, "left", 2L, "right", null)));
        type("Eithers", new ListSerializer(new EitherSerializer<>(LONG, DoubleSerializer.INSTANCE), scala.util.Either.class),
                value(list(new Left<>(2L), new Right<>(0.5)), List.of(fields("is_left", true, "left", 2L, "right", null),
                        fields("is_left", false, "left", null, "right", 0.5))));
        type("Nothing", new NothingSerializer());
        type("Unit", new UnitSerializer(), value(BoxedUnit.UNIT, true));
        type("Option<Unit>", new OptionSerializer<>(new UnitSerializer()), value(new Some<>(BoxedUnit.UNIT), true));
        type("Option<Nothing>", new OptionSerializer<>(new NothingSerializer()), value(Option.empty(), null));
    }

    @SuppressWarnings("deprecation")
    private static <T> Buffer<T> buffer(List<T> held) {
        return JavaConverters.asScalaBuffer(held);
    }

    @SafeVarargs
    private static <T> scala.collection.immutable.List<T> list(T... held) {
        return buffer(Arrays.asList(held)).toList();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void collections() throws Exception {
        type("List<String>", new ListSerializer<>(TEXT, String.class), value(list("a", null, ""), Arrays.asList("a", null, "")),
                value(list(), List.of()));
        type("List<Int>", new ListSerializer(INT, int.class), value(list(1, -1), List.of(1, -1)));
        type("::<String>", new ListCCSerializer<>(TEXT, String.class), value(list("a", "b"), List.of("a", "b")));
        type("Vector<Long>", new VectorSerializer<>(LONG, Long.class),
                value(buffer(List.of(1L, 2L)).toVector(), List.of(1L, 2L)));
        type("Seq<Long>", new SeqSerializer<>(LONG, Long.class), value(list(3L), List.of(3L)));
        type("Set<String>", new SetSerializer<>(TEXT, String.class), value(buffer(List.of("b", "a")).toSet(), List.of("b", "a")));
        type("Array<Option<String>>", new ArraySerializer(new OptionSerializer<>(TEXT), Option.class),
                value(new Option[] {new Some<>("a"), NONE}, Arrays.asList("a", null)));
        type("Map<String, Long>", new MapSerializer<>(TEXT, LONG), value(map("a", 1L, "b", 2L),
                List.of(List.of("a", 1L), List.of("b", 2L))), value(map(), List.of()));
        type("Map<Int, List<String>>", new MapSerializer<>(INT, new ListSerializer<>(TEXT, String.class)),
                value(map(1, list("x", null)), List.of(List.of(1, Arrays.asList("x", null)))));
        type("List<Closed>", new ListSerializer(new ScalaCaseObjectSerializer<>(Closed$.class), Closed$.class));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static scala.collection.immutable.Map<?, ?> map(Object... keysAndValues) {
        scala.collection.immutable.Map held = scala.collection.immutable.Map$.MODULE$.empty();
        for (int i = 0; i < keysAndValues.length; i += 2) {
            held = (scala.collection.immutable.Map) held.$plus(new Tuple2<>(keysAndValues[i], keysAndValues[i + 1]));
        }
        return held;
    }

    // --------------------------------------------------------------------------------- mapped

    /** A text in a class of its own. */
    public record Wrapped(String text) {}

    /** Its mapper. */
    public static class WrappedMapper implements MappedSerializer.TypeMapper<Wrapped, String> {
        @Override
        public String map(Wrapped from) {
            return from.text;
        }

        @Override
        public Wrapped contramap(String to) {
            return new Wrapped(to);
        }
    }

    private static void mapped() throws Exception {
        UUID id = UUID.fromString("6ba7b810-9dad-11d1-80b4-00c04fd430c8");
        type("Wrapped", new MappedSerializer<>(new WrappedMapper(), TEXT), value(new Wrapped("w"), "w"));
        type("BigDecimal", new MappedSerializer<>(new BigDecMapper(), BigDecSerializer.INSTANCE),
                value(scala.math.BigDecimal.exact("-12.50"), "-12.50"));
        type("BigInt", new MappedSerializer<>(new BigIntMapper(), BigIntSerializer.INSTANCE),
                value(scala.math.BigInt.apply("123456789012345678901234567890"), "123456789012345678901234567890"));
        type("UUID", new MappedSerializer<>(new UuidMapper(), BytePrimitiveArraySerializer.INSTANCE),
                hashed(id, id.toString()), hashed(new UUID(-1L, 2L), new UUID(-1L, 2L).toString()));
        type("List<UUID>", new ListSerializer<>(new MappedSerializer<>(new UuidMapper(), BytePrimitiveArraySerializer.INSTANCE),
                UUID.class), value(list(id, id), List.of(id.toString(), id.toString())));
    }

    private static void verdicts() throws Exception {
        pairs("Tuple2<String, Long>", "Tuple2<Int, Double>", "Tuple3<String, Long, Int>");
        pairs("Click", "Click with one more", "Purchase");
        pairs("Door", "Door of another order", "Event");
        pair("Event", "Event without Closed");
        pair("Event without Closed", "Event");
        pair("Event", "Event of another order");
        pairs("Option<String>", "Option<Long>");
        pairs("Either<String, Long>", "Either<Long, Double>");
        pairs("List<String>", "List<Int>", "Vector<Long>", "Seq<Long>", "Map<String, Long>");
        pairs("Wrapped", "BigInt");
        pairs("Unit", "Nothing");
    }

    /** What older versions do not have: loaded only where it is there. */
    private static final class Newer {
        @SuppressWarnings({"unchecked", "rawtypes"})
        static void mutable() throws Exception {
            Buffer<String> some = buffer(new ArrayList<>(List.of("a", "b")));
            List<String> shown = List.of("a", "b");
            type("mutable.Buffer<String>", new MutableBufferSerializer<>(TEXT, String.class), withNull(value(some, shown)));
            type("mutable.ArrayDeque<String>", new MutableArrayDequeSerializer<>(TEXT, String.class), withNull(
                    value(scala.collection.mutable.ArrayDeque$.MODULE$.from(some), shown)));
            type("mutable.Queue<String>", new MutableQueueSerializer<>(TEXT, String.class), withNull(
                    value(scala.collection.mutable.Queue$.MODULE$.from(some), shown)));
            type("mutable.Set<String>", new MutableSetSerializer<>(TEXT, String.class), withNull(
                    value(scala.collection.mutable.Set$.MODULE$.from(buffer(List.of("a"))), List.of("a"))));
            scala.collection.mutable.Map held = scala.collection.mutable.Map$.MODULE$.empty();
            held.put("a", 1L);
            type("mutable.Map<String, Long>", new MutableMapSerializer<>(TEXT, LONG),
                    withNull(value(held, List.of(List.of("a", 1L)))));
            type("Buffers", new ListSerializer(new MutableBufferSerializer<>(TEXT, String.class), Buffer.class),
                    value(list(some, null, buffer(List.of())), Arrays.asList(shown, null, List.of())));
            type("Maps", new ListSerializer(new MutableMapSerializer<>(TEXT, LONG), scala.collection.mutable.Map.class),
                    value(list(held, null), Arrays.asList(List.of(List.of("a", 1L)), null)));
        }

        @SuppressWarnings({"unchecked", "rawtypes"})
        static void sorted() throws Exception {
            Ordering<String> natural = scala.math.Ordering.String$.MODULE$;
            TypeSerializer<Ordering<String>> ordering = DefaultStringOrderingSerializer$.MODULE$;
            Buffer<String> some = buffer(List.of("b", "a"));
            type("SortedSet<String>", new SortedSetSerializer<>(TEXT, String.class, ordering), withNull(
                    value(scala.collection.immutable.TreeSet$.MODULE$.from(some, natural), List.of("a", "b"))));
            type("mutable.SortedSet<String>", new MutableSortedSetSerializer<>(TEXT, String.class, ordering), withNull(
                    value(scala.collection.mutable.TreeSet$.MODULE$.from(some, natural), List.of("a", "b"))));
            Buffer<Tuple2<String, Long>> entries = buffer(List.of(new Tuple2<>("b", 2L), new Tuple2<>("a", 1L)));
            List<?> shown = List.of(List.of("a", 1L), List.of("b", 2L));
            type("SortedMap<String, Long>", new SortedMapSerializer<>(TEXT, LONG, ordering), withNull(
                    value(scala.collection.immutable.TreeMap$.MODULE$.from(entries, natural), shown)));
            type("mutable.SortedMap<String, Long>", new MutableSortedMapSerializer<>(TEXT, LONG, ordering), withNull(
                    value(scala.collection.mutable.TreeMap$.MODULE$.from(entries, natural), shown)));
            type("SortedSet<String> in reverse", new SortedSetSerializer<>(TEXT, String.class,
                    new ReverseOrderingSerializer<>(ordering)), withNull(
                    value(scala.collection.immutable.TreeSet$.MODULE$.from(some, natural.reverse()), List.of("b", "a"))));
            type("SortedSet<Option<String>>", new SortedSetSerializer(new OptionSerializer<>(TEXT), Option.class,
                    new OptionOrderingSerializer<>(ordering)));
        }

        static void times() throws Exception {
            LocalDateTime local = LocalDateTime.of(2026, 7, 3, 12, 30, 1, 5_000);
            type("ZoneId", ZoneIdSerializer$.MODULE$, value(ZoneId.of("Europe/Berlin"), "Europe/Berlin"), value(null, null));
            type("ZoneOffset", ZoneOffsetSerializer$.MODULE$, value(ZoneOffset.ofHours(-2), -7200), value(null, null));
            type("ZonedDateTime", ZonedDateTimeSerializer$.MODULE$, value(ZonedDateTime.of(local, ZoneId.of("Z")),
                    fields("local", "2026-07-03T12:30:01.000005", "zone", "Z")), value(null, fields("local", null, "zone", null)));
            type("OffsetDateTime", OffsetDateTimeSerializer$.MODULE$, value(OffsetDateTime.of(local, ZoneOffset.ofHours(2)),
                    fields("local", "2026-07-03T12:30:01.000005", "offset", 7200)),
                    value(null, fields("local", null, "offset", null)));
            type("FiniteDuration", FiniteDurationSerializer$.MODULE$, value(new FiniteDuration(5, TimeUnit.MINUTES),
                    fields("length", 5L, "unit", "MINUTES")));
            type("Duration", DurationSerializer$.MODULE$, value(new FiniteDuration(5, TimeUnit.SECONDS),
                    fields("type", "finite", "finite", fields("length", 5L, "unit", "SECONDS"))),
                    value(Duration.Undefined(), fields("type", "undefined", "finite", null)),
                    value(Duration.Inf(), fields("type", "infinite", "finite", null)),
                    value(Duration.MinusInf(), fields("type", "minus_infinite", "finite", null)), value(null, null));
            type("Durations", new ListSerializer<>(DurationSerializer$.MODULE$, Duration.class),
                    value(list(Duration.Inf(), null), Arrays.asList(fields("type", "infinite", "finite", null), null)));
        }
    }

    /** As Scala 3 compiles `enum Color { case Red; case Rgb(value: Int) }`. */
    public static class Color extends Case {
        private final String prefix;

        Color(String prefix, Object... parts) {
            super(parts);
            this.prefix = prefix;
        }

        @Override
        public String productPrefix() {
            return prefix;
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void enums() throws Exception {
        String base = "org.apache.flinkx.api.serializer.Scala3Enum";
        Constructor<?> constant = Class.forName(base + "ValueSerializer").getConstructors()[0];
        Constructor<?> whole = Class.forName(base + "Serializer").getConstructors()[0];
        TypeSerializer red = (TypeSerializer) constant.newInstance(Color.class, "Red");
        TypeSerializer green = (TypeSerializer) constant.newInstance(Color.class, "Green");
        type("Light", (TypeSerializer) whole.newInstance(new String[] {"Red", "Green"}, new TypeSerializer<?>[] {red, green}),
                value(new Color("Green"), "Green"), value(new Color("Red"), "Red"), value(null, null));
        type("Color", (TypeSerializer) whole.newInstance(new String[] {"Red", "Rgb"},
                new TypeSerializer<?>[] {red, caseClass(Color.class, INT)}),
                value(new Color("Rgb", 255), fields("type", "Rgb", "Rgb", fields("f0", 255))),
                value(new Color("Red"), fields("type", "Red", "Rgb", null)));
        pairs("Light", "Color");
    }
}
