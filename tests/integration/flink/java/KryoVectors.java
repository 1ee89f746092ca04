import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.URI;
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
import java.time.ZoneOffset;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Collections;
import java.util.Currency;
import java.util.Date;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.LinkedList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.TimeZone;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
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

    static void value(String name, Class<?> type, Object value, Class<?>... registered) throws Exception {
        SerializerConfigImpl config = new SerializerConfigImpl();
        Arrays.stream(registered).forEach(config::registerKryoType);
        write(name, type, value, config);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void write(String name, Class<?> type, Object value, SerializerConfigImpl config) throws Exception {
        KryoSerializer serializer = new KryoSerializer(type, config);
        DataOutputSerializer bytes = new DataOutputSerializer(64);
        try {
            serializer.serialize(value, bytes);
        } catch (RuntimeException refused) {
            System.err.println(name + ": " + refused);
            return;
        }
        DataOutputSerializer snapshot = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(snapshot, serializer.snapshotConfiguration());
        System.out.println(String.format(
                "{\"name\": \"%s\", \"type\": \"%s\", \"snapshot\": \"%s\", \"value\": \"%s\"}",
                name, type.getName(), hex(snapshot), hex(bytes)));
    }

    static String hex(DataOutputSerializer bytes) {
        return StringUtils.byteToHexString(bytes.getCopyOfBuffer());
    }

    public static void main(String[] arguments) throws Exception {
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
    }
}
