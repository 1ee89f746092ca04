import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.Month;
import java.time.MonthDay;
import java.time.OffsetDateTime;
import java.time.OffsetTime;
import java.time.Period;
import java.time.Year;
import java.time.YearMonth;
import java.time.ZoneId;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.atomic.LongAdder;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.tuple.*;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.JsonNodeFactory;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;
import org.apache.flink.util.StringUtils;

/** What this Flink's KryoSerializer writes: a line of JSON for each value. */
class KryoVectors {
    enum Tier {
        GOLD,
        SILVER {
            @Override
            int rate() {
                return 2;
            }
        };

        int rate() {
            return 1;
        }
    }

    static final class Point {
        int x;
        int y;

        Point(int x, int y) {
            this.x = x;
            this.y = y;
        }
    }

    static class Base {
        String owner = "größe";
    }

    static class Event extends Base {
        boolean live = true;
        byte small = -3;
        short brief = -300;
        char letter = 'ß';
        int count = -70000;
        long total = 1L << 40;
        float share = 0.5f;
        double rate = -1e300;
        Long boxed = 7L;
        Integer none;
        String name = "first";
        Object any = Arrays.asList(1, "two");
        Tier tier = Tier.SILVER;
        Tier[] tiers = {Tier.GOLD, null};
        Point point = new Point(1, -1);
        Point[] points = {new Point(2, 3), null};
        int[] numbers = {1, -1, 1 << 30};
        String[] words = {"a", null, "long enough"};
        List<String> tags = new ArrayList<>(List.of("x", "yy"));
        List<Point> path = new LinkedList<>(List.of(new Point(4, 5)));
        List<Base> bases = new ArrayList<>(List.of(new Base()));
        Map<String, Long> sums = new TreeMap<>(Map.of("k", 1L));
        Map<String, List<Long>> groups = new HashMap<>(Map.of("g", new ArrayList<>(List.of(1L, 2L))));
        Set<Integer> ids = new HashSet<>(List.of(3));
        BigDecimal price = new BigDecimal("12.50");
        transient int forgotten = 1;
        static int shared = 2;
    }

    /** One that refers to itself. */
    static class Ring {
        Ring next = this;
        String name = "ring";
    }

    /** Fields between which there are some that Kryo 2.24 writes by theirs, and Kryo 5.6 in forms of its own. */
    static class Odd {
        String before = "before";
        OptionalInt count = OptionalInt.of(-5);
        OptionalLong distance = OptionalLong.of(1L << 40);
        Object empty = OptionalDouble.empty();
        ZonedDateTime from = BERLIN;
        OptionalInt none;
        AtomicLong seen = new AtomicLong(7);
        OptionalDouble share = OptionalDouble.of(0.5);
        URL site;
        ZoneId zone = ZoneId.of("Europe/Berlin");
        String last = "last";
    }

    /** Fields whose types have arguments, which both take into account, each in its own way. */
    static class Generic {
        Tuple2<String, Long> pair = Tuple2.of("a", 1L);
        List<Tuple2<String, Long>> pairs = new ArrayList<>(List.of(Tuple2.of("b", 2L), Tuple2.of("c", 3L)));
        Map<String, Tuple2<Integer, String>> byName = new HashMap<>(Map.of("d", Tuple2.of(4, "e")));
        Tuple2<List<String>, Object> mixed = Tuple2.of(new ArrayList<>(List.of("f")), 5);
        Map.Entry<String, Integer> entry = new AbstractMap.SimpleEntry<>("g", 6);
        AbstractMap.SimpleEntry<String, Integer> known = new AbstractMap.SimpleEntry<>("h", null);
        AtomicReference<String> reference = new AtomicReference<>("i");
        Object any = Tuple2.of("j", Tuple1.of(7L));
        String last = "last";
    }

    /** Fields whose types have arguments, of which only the fields' own count in Kryo 2.24. */
    static class Direct {
        Tuple2<String, Long> pair = Tuple2.of("a", 1L);
        Tuple3<List<String>, Object, Integer> mixed = Tuple3.of(new ArrayList<>(List.of("f")), "b", null);
        Map.Entry<String, Integer> entry = new AbstractMap.SimpleEntry<>("g", 6);
        AbstractMap.SimpleImmutableEntry<String, Integer> known = new AbstractMap.SimpleImmutableEntry<>("h", null);
        AtomicReference<String> reference = new AtomicReference<>("i");
        Either<String, Long> left = Either.Left("j");
        Either<String, Long> right = Either.Right(7L);
        Either<List<String>, Long> long1 = Either.Left(new ArrayList<>(List.of("k")));
        String last = "last";
    }

    /** Elements whose types have arguments, which only Kryo 5 takes into account. */
    static class Within {
        List<Tuple2<String, Long>> pairs = new ArrayList<>(List.of(Tuple2.of("b", 2L), Tuple2.of("c", null)));
        Map<String, Tuple2<Integer, String>> byName = new HashMap<>(Map.of("d", Tuple2.of(4, "e")));
        List<Map.Entry<String, Integer>> entries = new LinkedList<>(List.of(new AbstractMap.SimpleEntry<>("f", 5)));
        List<Optional<String>> maybe = new ArrayList<>(List.of(Optional.of("g"), Optional.empty()));
        List<Either<String, Long>> either = new ArrayList<>(List.of(Either.Left("h"), Either.Right(6L)));
        List<List<Tuple1<String>>> deep = new ArrayList<>(List.of(new ArrayList<>(List.of(Tuple1.of("i")))));
        Tuple2<?, ?>[] array = {Tuple2.of("k", 9L)};
        Object any = Tuple2.of("j", Tuple1.of(7L));
        OptionalInt last = OptionalInt.of(8);
    }

    /** Optional values, whose form in Kryo 2.24 depends on the type of the field. */
    static class Maybe {
        Optional<String> some = Optional.of("a");
        Optional<Long> zero = Optional.of(0L);
        Optional<Long> none = Optional.empty();
        Optional<List<String>> list = Optional.of(new ArrayList<>(List.of("b")));
        Optional<Object> any = Optional.of("c");
        Optional<String> missing;
        String last = "last";
    }

    record Named(String name, int number, List<String> tags) {
    }

    static final ZonedDateTime BERLIN = ZonedDateTime.of(2024, 6, 1, 12, 30, 0, 5, ZoneId.of("Europe/Berlin"));

    /** What `main` does with each value: writes it, or compares it with what was written. */
    interface Use {
        void of(String name, Class<?> type, Object value, SerializerConfigImpl config) throws Exception;
    }

    static Use use = KryoVectors::write;

    static void value(String name, Class<?> type, Object value, Class<?>... registered) throws Exception {
        SerializerConfigImpl config = new SerializerConfigImpl();
        Arrays.stream(registered).forEach(config::registerKryoType);
        use.of(name, type, value, config);
    }

    /** A value by its class, and among others. */
    static void both(String name, Object value) throws Exception {
        value(name, value.getClass(), value);
        value(name + " in a list", List.class, new ArrayList<>(Arrays.asList(value, null, value, "last")));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static byte[] bytes(Class<?> type, Object value, SerializerConfigImpl config) throws IOException {
        DataOutputSerializer bytes = new DataOutputSerializer(64);
        new KryoSerializer(type, config).serialize(value, bytes);
        return bytes.getCopyOfBuffer();
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void write(String name, Class<?> type, Object value, SerializerConfigImpl config) throws IOException {
        byte[] bytes;
        try {
            bytes = bytes(type, value, config);
        } catch (RuntimeException refused) {
            System.err.println(name + ": " + refused);
            return;
        }
        DataOutputSerializer snapshot = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(
                snapshot, new KryoSerializer(type, config).snapshotConfiguration());
        System.out.println(String.format(
                "{\"name\": \"%s\", \"type\": \"%s\", \"snapshot\": \"%s\", \"value\": \"%s\"}",
                name, type.getName(), StringUtils.byteToHexString(snapshot.getCopyOfBuffer()),
                StringUtils.byteToHexString(bytes)));
    }

    /** Says whether this Flink reads the value of that name as what it was, by `equals` and class. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void compare(
            Map<String, String> given, String name, Class<?> type, Object value, SerializerConfigImpl config)
            throws IOException {
        String hex = given.get(name);
        if (hex == null) {
            return;
        }
        String said;
        try {
            DataInputDeserializer bytes = new DataInputDeserializer(StringUtils.hexStringToByte(hex));
            Object read = new KryoSerializer(type, config).deserialize(bytes);
            said = bytes.available() > 0 ? "bytes are left" : same(value, read) ? "equal" : "other: " + read;
        } catch (Exception | LinkageError failed) {
            said = "fails: " + failed;
        }
        System.out.println(name + "\t" + said.replaceAll("\\s+", " "));
    }

    static boolean same(Object one, Object other) throws IOException {
        if (one == null || other == null || one.getClass() != other.getClass()) {
            return one == other;
        }
        if (one instanceof Object[]) {
            return same(Arrays.asList((Object[]) one), Arrays.asList((Object[]) other));
        }
        if (one instanceof Collection && !(one instanceof Set)) {
            return same((Collection<?>) one, (Collection<?>) other);
        }
        if (one instanceof Optional) {
            return same(((Optional<?>) one).orElse(null), ((Optional<?>) other).orElse(null));
        }
        if (Objects.deepEquals(one, other)) {
            return true;
        }
        try {
            Class<?> by = one.getClass().getMethod("equals", Object.class).getDeclaringClass();
            // Java does not compare their contents: this Kryo does
            return by == Object.class && Arrays.equals(
                    bytes(Object.class, one, new SerializerConfigImpl()),
                    bytes(Object.class, other, new SerializerConfigImpl()));
        } catch (NoSuchMethodException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static boolean same(Collection<?> all, Collection<?> others) throws IOException {
        Iterator<?> next = others.iterator();
        for (Object one : all) {
            Object other = next.hasNext() ? next.next() : all;
            if (one == all ? other != others : !same(one, other)) {
                return false;
            }
        }
        return all.size() == others.size();
    }

    /** Without an argument all values are written; with `compare` those that are given are compared. */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0) {
            Map<String, String> given = new HashMap<>();
            BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line; (line = lines.readLine()) != null; ) {
                given.put(line.substring(0, line.indexOf('\t')), line.substring(line.indexOf('\t') + 1));
            }
            use = (name, type, value, config) -> compare(given, name, type, value, config);
        }
        List<Object> scalars = new ArrayList<>(List.of(
                1, -70000, 1L << 40, -1L, (byte) -3, (short) -300, 'ß', true, 0.5f, -1e300,
                "", "a", "ab", "größe", "x".repeat(40), "y".repeat(70), "z".repeat(9000) + "ß", "𝄞"));
        scalars.addAll(List.of(
                new BigInteger("-12345678901234567890"), BigInteger.ZERO, new BigDecimal("-12.50"),
                BigDecimal.ZERO, new BigDecimal("123456789012345678901234567890E5"),
                new Date(1700000000123L), new Date(-1), new Timestamp(1700000000123L),
                new java.sql.Date(1700000000000L), new java.sql.Time(3600000L),
                UUID.fromString("123e4567-e89b-12d3-a456-426614174000"), URI.create("http://a.b/c"),
                Locale.GERMANY, Currency.getInstance("EUR"), TimeZone.getTimeZone("Europe/Berlin"),
                Pattern.compile("a+"), BitSet.valueOf(new long[] {5L, 1L << 63}),
                new StringBuilder("built"), new StringBuffer("x".repeat(5))));
        scalars.addAll(List.of(
                Instant.ofEpochSecond(1700000000L, 123456789), Instant.ofEpochSecond(-1, 5),
                LocalDate.of(2024, 2, 29), LocalTime.of(12, 30), LocalTime.of(1, 2, 3, 4), LocalTime.of(5, 0, 6),
                LocalTime.of(7, 0), LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000), Duration.ofMillis(-1500),
                Period.of(1, -2, 3), ZoneOffset.ofHours(2), ZoneOffset.ofTotalSeconds(61),
                Year.of(2024), YearMonth.of(2024, 2), MonthDay.of(2, 29), Month.MAY,
                OffsetTime.of(1, 2, 3, 4, ZoneOffset.ofHours(-3)),
                OffsetDateTime.of(2024, 2, 29, 1, 2, 3, 4, ZoneOffset.UTC)));
        scalars.addAll(List.of(
                new byte[] {1, -1}, new short[] {1, -1}, new char[] {'a', 'ß'}, new int[] {1, -1, 1 << 30},
                new long[] {1, -1L << 50}, new float[] {1.5f}, new double[] {-0.0}, new boolean[] {true, false},
                new String[] {"a", null}, new Object[] {1, null, "b"}, new Integer[] {1, null},
                new int[][] {{1}, {}}));
        int number = 0;
        for (Object scalar : scalars) {
            String name = scalar.getClass().getSimpleName() + " " + number++;
            value(name, scalar.getClass(), scalar);
            value(name + " as Object", Object.class, scalar);
        }
        value("null", Object.class, null);
        List<Object> mixed = Arrays.asList(1, "two", null, 3L, "two");
        value("ArrayList", ArrayList.class, new ArrayList<>(mixed));
        value("List of numbers", List.class, new ArrayList<>(List.of(1L, 2L)));
        value("List of nulls", List.class, new ArrayList<>(Arrays.asList(null, null)));
        value("List with a null", List.class, new ArrayList<>(Arrays.asList("a", null)));
        value("List of nothing", List.class, new ArrayList<>());
        value("LinkedList", LinkedList.class, new LinkedList<>(mixed));
        value("ArrayDeque", ArrayDeque.class, new ArrayDeque<>(List.of("a", "b")));
        value("Arrays.asList", Object.class, mixed);
        value("Arrays.asList of strings", Object.class, Arrays.asList("a", "b"));
        value("PriorityQueue", PriorityQueue.class, new PriorityQueue<>(List.of(3, 1, 2)));
        value("HashSet", HashSet.class, new HashSet<>(List.of(1, 2)));
        value("LinkedHashSet", Set.class, new LinkedHashSet<>(List.of("b", "a")));
        value("TreeSet", TreeSet.class, new TreeSet<>(List.of("b", "a")));
        value("HashMap", HashMap.class, new HashMap<>(Map.of("a", 1, "b", 2L)));
        value("LinkedHashMap", Map.class, new LinkedHashMap<>(Collections.singletonMap(1, null)));
        value("TreeMap", TreeMap.class, new TreeMap<>(Map.of("a", List.of())));
        value("TreeMap backwards", TreeMap.class, new TreeMap<String, Integer>(Collections.reverseOrder()));
        value("ConcurrentHashMap", Map.class, new ConcurrentHashMap<>(Map.of("a", 'b')));
        value("empty list", List.class, Collections.emptyList());
        value("empty map", Map.class, Collections.emptyMap());
        value("empty set", Set.class, Collections.emptySet());
        value("singleton list", List.class, Collections.singletonList("a"));
        value("singleton set", Set.class, Collections.singleton(1));
        value("singleton map", Map.class, Collections.singletonMap("a", 1));
        value("Optional", Optional.class, Optional.of("a"));
        value("no Optional", Optional.class, Optional.empty());
        value("lists in lists", List.class,
                new ArrayList<>(List.of(new ArrayList<>(List.of(1)), new ArrayList<>(List.of("a", 2)))));
        ArrayList<Object> twice = new ArrayList<>(List.of("a"));
        value("a list twice", List.class, new ArrayList<>(Arrays.asList(twice, twice, "a")));
        value("List.of", Object.class, List.of(1, 2, 3));
        value("Tier", Tier.class, Tier.GOLD);
        value("Tier with a body", Tier.class, Tier.SILVER);
        value("Tiers", List.class, new ArrayList<>(List.of(Tier.GOLD, Tier.GOLD)));
        value("registered", List.class, new ArrayList<>(List.of(new Point(1, 2), Tier.GOLD)),
                Integer.class, Tier.class, UUID.class, Point.class, ArrayList.class);
        value("Point", Point.class, new Point(1, -1));
        value("Event", Event.class, new Event());
        value("Events", List.class, new ArrayList<>(List.of(new Event(), new Event())), Event.class);
        Event empty = new Event();
        empty.owner = null;
        empty.boxed = null;
        empty.name = null;
        empty.any = null;
        empty.tier = null;
        empty.tiers = null;
        empty.point = null;
        empty.points = null;
        empty.numbers = null;
        empty.words = null;
        empty.tags = null;
        empty.path = new ArrayList<>();
        empty.bases = Collections.emptyList();
        empty.sums = Collections.singletonMap("a", 1L);
        empty.groups = null;
        empty.ids = new TreeSet<>();
        empty.price = null;
        value("empty Event", Event.class, empty);
        value("Ring", Ring.class, new Ring());
        others();
    }

    /** Classes that the two versions write in other forms, or that Flink 1 itself can't read. */
    static void others() throws Exception {
        both("OptionalInt", OptionalInt.of(-70000));
        both("no OptionalInt", OptionalInt.empty());
        both("OptionalLong", OptionalLong.of(1L << 40));
        both("no OptionalLong", OptionalLong.empty());
        both("OptionalDouble", OptionalDouble.of(-1e300));
        both("no OptionalDouble", OptionalDouble.empty());
        both("an Optional of a list", Optional.of(new ArrayList<>(List.of("a"))));
        both("ZonedDateTime", BERLIN);
        both("ZonedDateTime with an offset", ZonedDateTime.of(2024, 6, 1, 12, 0, 0, 0, ZoneOffset.ofHours(2)));
        both("ZonedDateTime with odd seconds", ZonedDateTime.of(2024, 6, 1, 12, 0, 7, 0, ZoneOffset.ofTotalSeconds(61)));
        both("ZonedDateTime in UTC", ZonedDateTime.of(1, 1, 1, 1, 1, 1, 1, ZoneOffset.UTC));
        both("ZonedDateTime at the end of summer", ZonedDateTime.of(2024, 10, 27, 2, 30, 0, 0, BERLIN.getZone()));
        both("ZonedDateTime an hour later", ZonedDateTime.ofLocal(
                LocalDateTime.of(2024, 10, 27, 2, 30), BERLIN.getZone(), ZoneOffset.ofHours(1)));
        both("ZoneId", BERLIN.getZone());
        both("ZoneId with a prefix", ZoneId.of("UTC+2"));
        both("EnumSet", EnumSet.of(Tier.GOLD));
        both("Locales", new ArrayList<>(List.of(Locale.US, Locale.FRANCE, Locale.US, Locale.ROOT, new Locale("en", "US", "X"))));
        both("Locale with a script", Locale.forLanguageTag("zh-Hans-CN"));
        both("EnumSet of a constant with a body", EnumSet.of(Tier.SILVER));
        both("no EnumSet", EnumSet.noneOf(TimeUnit.class));
        both("EnumMap", new EnumMap<>(Map.of(Tier.GOLD, 1)));
        value("Tier with a body by its name", List.class, new ArrayList<>(List.of(Tier.SILVER, Tier.GOLD)));
        both("TimeUnit", TimeUnit.DAYS);
        both("Charset", StandardCharsets.UTF_8);
        both("URL", new URL("http://a.b:8080/c?d#e"));
        both("Class", Tier.class);
        both("Class of a primitive", int.class);
        both("AtomicInteger", new AtomicInteger(-70000));
        both("AtomicLong", new AtomicLong(1L << 40));
        both("AtomicBoolean", new AtomicBoolean(true));
        both("AtomicReference", new AtomicReference<>("a"));
        both("LongAdder", new LongAdder());
        both("SimpleEntry", new AbstractMap.SimpleEntry<>("a", 1));
        both("SimpleImmutableEntry", new AbstractMap.SimpleImmutableEntry<>("a", null));
        both("Map.entry", Map.entry("a", 1));
        both("IntSummaryStatistics", new IntSummaryStatistics(2, 1, 3, 4));
        both("LongSummaryStatistics", new LongSummaryStatistics(2, 1, 3, 4));
        both("DoubleSummaryStatistics", new DoubleSummaryStatistics(2, 1, 3, 4));
        both("MathContext", new MathContext(7));
        GregorianCalendar calendar = new GregorianCalendar(TimeZone.getTimeZone("Europe/Berlin"), Locale.GERMANY);
        calendar.setTimeInMillis(1700000000123L);
        both("GregorianCalendar", calendar);
        both("SimpleTimeZone", new SimpleTimeZone(3600000, "X"));
        both("InetAddress", InetAddress.getByAddress(new byte[] {127, 0, 0, 1}));
        both("InetSocketAddress", InetSocketAddress.createUnresolved("a.b", 8080));
        both("Object", new Object());
        both("StringJoiner", new StringJoiner(","));
        both("Timestamp before 1970", new Timestamp(-1500));
        both("Character[]", new Character[] {'a', null});
        both("UUID[]", new UUID[] {new UUID(1, 2), null});
        both("Object[][]", new Object[][] {{1}, null});
        both("List.of nothing", List.of());
        both("List.of one", List.of(1));
        both("List.of three", List.of("a", "b", "c"));
        both("Stream.toList with a null", Stream.of("a", null, "b").toList());
        both("a part of List.of", List.of(1, 2, 3).subList(0, 2));
        both("Set.of one", Set.of(1));
        both("Set.of nothing", Set.of());
        both("Map.of nothing", Map.of());
        both("Map.of one", Map.of("a", 1));
        both("unmodifiable list", Collections.unmodifiableList(new ArrayList<>(List.of(1))));
        both("unmodifiable collection", Collections.unmodifiableCollection(new ArrayList<>(List.of(1))));
        both("unmodifiable set", Collections.unmodifiableSet(new HashSet<>(List.of(1))));
        both("unmodifiable map", Collections.unmodifiableMap(new HashMap<>(Map.of("a", 1))));
        both("unmodifiable sorted map", Collections.unmodifiableSortedMap(new TreeMap<>(Map.of("a", 1))));
        both("synchronized list", Collections.synchronizedList(new ArrayList<>(List.of(1))));
        both("synchronized map", Collections.synchronizedMap(new HashMap<>(Map.of("a", 1))));
        both("checked list", Collections.checkedList(new ArrayList<>(List.of(1)), Integer.class));
        both("three copies", Collections.nCopies(3, "a"));
        Set<Object> fromMap = Collections.newSetFromMap(new HashMap<>());
        fromMap.add("a");
        both("a set from a map", fromMap);
        both("a part of an ArrayList", new ArrayList<>(List.of(1, 2, 3)).subList(0, 2));
        both("keys of a HashMap", new HashMap<>(Map.of("a", 1)).keySet());
        both("values of a HashMap", new HashMap<>(Map.of("a", 1)).values());
        both("entries of a HashMap", new HashMap<>(Map.of("a", 1)).entrySet());
        both("a part of a TreeMap", new TreeMap<>(Map.of("a", 1, "b", 2)).headMap("b"));
        both("an array of nothing as a list", Arrays.asList());
        both("Vector", new Vector<>(List.of(1)));
        both("Stack", new Stack<Object>());
        both("Hashtable", new Hashtable<>(Map.of("a", 1)));
        both("Properties", new Properties());
        both("IdentityHashMap", new IdentityHashMap<>(Map.of("a", 1)));
        both("WeakHashMap", new WeakHashMap<>(Map.of("a", 1)));
        both("ConcurrentSkipListMap", new ConcurrentSkipListMap<>(Map.of("a", 1)));
        both("ConcurrentSkipListSet", new ConcurrentSkipListSet<>(Set.of("a")));
        both("TreeSet backwards", backwards());
        both("TreeMap without case", new TreeMap<String, Integer>(String.CASE_INSENSITIVE_ORDER));
        both("PriorityQueue backwards", new PriorityQueue<Object>(Collections.reverseOrder()));
        both("CopyOnWriteArrayList", new CopyOnWriteArrayList<>(List.of(1)));
        both("CopyOnWriteArraySet", new CopyOnWriteArraySet<>(List.of(1)));
        both("ConcurrentLinkedQueue", new ConcurrentLinkedQueue<>(List.of(1)));
        both("ConcurrentLinkedDeque", new ConcurrentLinkedDeque<>(List.of(1)));
        both("LinkedBlockingQueue", new LinkedBlockingQueue<>(List.of(1)));
        both("LinkedBlockingDeque", new LinkedBlockingDeque<>(List.of(1)));
        both("ArrayBlockingQueue", new ArrayBlockingQueue<>(3, true, List.of(1)));
        both("PriorityBlockingQueue", new PriorityBlockingQueue<>(List.of(3, 1, 2)));
        both("LinkedTransferQueue", new LinkedTransferQueue<>(List.of(1)));
        both("keys of a ConcurrentHashMap", ConcurrentHashMap.newKeySet());
        both("Tuple0", Tuple0.INSTANCE);
        both("Tuple1", Tuple1.of("a"));
        both("Tuple2", Tuple2.of("a", 1L));
        both("Tuple3", Tuple3.of(1, null, Tuple2.of(Tier.GOLD, new ArrayList<>(List.of("a")))));
        both("Tuple12", Tuple12.of(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
        both("Tuple2[]", new Tuple2[] {Tuple2.of("a", 1L), null});
        both("Left", Either.Left("a"));
        both("Right", Either.Right(1L));
        both("Row", Row.of(1, "a", null));
        both("Row that deletes", Row.ofKind(RowKind.DELETE, 1));
        Row named = Row.withNames();
        named.setField("b", 1);
        named.setField("a", "x");
        both("Row with names", named);
        both("TimeWindow", new TimeWindow(5, 1L << 40));
        both("Odd", new Odd());
        both("Direct", new Direct());
        both("Within", new Within());
        both("Generic", new Generic());
        both("Maybe", new Maybe());
        value("Maybe, and an Optional after it", List.class, new ArrayList<>(List.of(new Maybe(), Optional.of("a"))));
        value("Generic, and a Tuple2 after it", List.class, new ArrayList<>(List.of(new Generic(), Tuple2.of("a", 1L))));
        both("Named", new Named("a", 1, List.of("x")));
        both("Named with a list", new Named("a", 1, new ArrayList<>(List.of("x"))));
        ArrayList<Object> endless = new ArrayList<>(List.of("a"));
        endless.add(endless);
        value("a list with itself", List.class, endless);
        Tuple2<String, Long> twice = Tuple2.of("a", 1L);
        value("a Tuple2 twice", List.class, new ArrayList<>(List.of(twice, twice)));
        OptionalInt five = OptionalInt.of(5);
        value("an OptionalInt twice", List.class, new ArrayList<>(List.of(five, five)));
        value("Odd with null", Odd.class, nulls());
        value("an hour twice", List.class, new ArrayList<>(List.of(ZoneOffset.ofHours(1), BERLIN,
                ZonedDateTime.of(2024, 6, 1, 12, 0, 0, 0, ZoneOffset.ofHours(1)), ZoneOffset.ofHours(1), "last")));
        value("registered tuples", List.class, new ArrayList<>(List.of(Tuple2.of("a", 1L), OptionalInt.of(1))),
                Tuple2.class, OptionalInt.class);
        ObjectNode json = JsonNodeFactory.instance.objectNode();
        json.put("text", "größe").put("int", -7).put("long", 1L << 40).put("double", 0.5).put("yes", true);
        json.put("decimal", new BigDecimal("12.5")).put("big", BigInteger.TEN).putNull("none");
        json.putArray("list").add("a").add(1).addObject().put("b", 2L);
        both("ObjectNode", json);
    }

    static TreeSet<String> backwards() {
        TreeSet<String> set = new TreeSet<>(Collections.reverseOrder());
        set.addAll(List.of("a", "b"));
        return set;
    }

    static Odd nulls() {
        Odd odd = new Odd();
        odd.count = null;
        odd.distance = OptionalLong.empty();
        odd.empty = null;
        odd.from = null;
        odd.seen = null;
        odd.share = OptionalDouble.empty();
        odd.zone = null;
        return odd;
    }
}
