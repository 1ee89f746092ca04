import java.io.ByteArrayOutputStream;
import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.zip.DeflaterOutputStream;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.IntSerializer;
import org.apache.flink.api.common.typeutils.base.ListSerializer;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.MapSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.table.api.DataTypes;
import org.apache.flink.table.catalog.ObjectIdentifier;
import org.apache.flink.table.data.ArrayData;
import org.apache.flink.table.data.DecimalData;
import org.apache.flink.table.data.GenericArrayData;
import org.apache.flink.table.data.GenericMapData;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.MapData;
import org.apache.flink.table.data.RawValueData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;
import org.apache.flink.table.data.binary.BinaryRowData;
import org.apache.flink.table.data.writer.BinaryRowWriter;
import org.apache.flink.table.data.writer.BinaryWriter;
import org.apache.flink.table.dataview.ListViewSerializer;
import org.apache.flink.table.dataview.MapViewSerializer;
import org.apache.flink.table.dataview.NullAwareMapSerializer;
import org.apache.flink.table.dataview.NullSerializer;
import org.apache.flink.table.runtime.generated.GeneratedHashFunction;
import org.apache.flink.table.runtime.generated.GeneratedRecordComparator;
import org.apache.flink.table.runtime.generated.GeneratedRecordEqualiser;
import org.apache.flink.table.runtime.operators.rank.ComparableRecordComparator;
import org.apache.flink.table.runtime.operators.sink.SortedLongSerializer;
import org.apache.flink.table.runtime.operators.window.CountWindow;
import org.apache.flink.table.runtime.operators.window.GlobalWindow;
import org.apache.flink.table.runtime.operators.window.TimeWindow;
import org.apache.flink.table.runtime.sequencedmultisetstate.linked.MetaSqnInfoSerializer;
import org.apache.flink.table.runtime.sequencedmultisetstate.linked.NodeSerializer;
import org.apache.flink.table.runtime.sequencedmultisetstate.linked.RowDataKeySerializer;
import org.apache.flink.table.runtime.sequencedmultisetstate.linked.RowSqnInfoSerializer;
import org.apache.flink.table.runtime.typeutils.AbstractRowDataSerializer;
import org.apache.flink.table.runtime.typeutils.BinaryRowDataSerializer;
import org.apache.flink.table.runtime.typeutils.DecimalDataSerializer;
import org.apache.flink.table.runtime.typeutils.ExternalSerializer;
import org.apache.flink.table.runtime.typeutils.InternalSerializers;
import org.apache.flink.table.runtime.typeutils.LinkedListSerializer;
import org.apache.flink.table.runtime.typeutils.PagedTypeSerializer;
import org.apache.flink.table.runtime.typeutils.RawValueDataSerializer;
import org.apache.flink.table.runtime.typeutils.RowDataSerializer;
import org.apache.flink.table.runtime.typeutils.SortedMapSerializer;
import org.apache.flink.table.runtime.typeutils.StringDataSerializer;
import org.apache.flink.table.runtime.typeutils.TimestampDataSerializer;
import org.apache.flink.table.runtime.typeutils.WindowKeySerializer;
import org.apache.flink.table.runtime.util.WindowKey;
import org.apache.flink.table.types.logical.ArrayType;
import org.apache.flink.table.types.logical.BigIntType;
import org.apache.flink.table.types.logical.DecimalType;
import org.apache.flink.table.types.logical.DistinctType;
import org.apache.flink.table.types.logical.IntType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.MapType;
import org.apache.flink.table.types.logical.MultisetType;
import org.apache.flink.table.types.logical.RawType;
import org.apache.flink.table.types.logical.RowType;
import org.apache.flink.table.types.logical.StructuredType;
import org.apache.flink.table.types.logical.TimestampKind;
import org.apache.flink.table.types.logical.TimestampType;
import org.apache.flink.table.types.logical.VarCharType;
import org.apache.flink.table.types.logical.utils.LogicalTypeChecks;
import org.apache.flink.table.types.logical.utils.LogicalTypeParser;
import org.apache.flink.types.RowKind;
import org.apache.flink.types.bitmap.Bitmap;
import org.apache.flink.types.variant.Variant;
import org.apache.flink.util.InstantiationUtil;

/**
 * Flink SQL's types and serializers, a line of JSON each:
 *
 * <pre>
 * type      a logical type's SQL text and Java stream
 * values    a serializer's snapshot, and what it writes: bytes, the value, and a row's hash code
 * pairs     what new snapshots (columns) say of old ones (rows), by their names in `values`
 *
 * javac -cp FLINK -d OUT TableVectors.java && java -cp FLINK:OUT TableVectors > table.jsonl
 * </pre>
 */
public class TableVectors {
    private static final HexFormat HEX = HexFormat.of();
    private static final Random RANDOM = new Random(20261121);
    private static final Map<String, TypeSerializerSnapshot<?>> SNAPSHOTS = new LinkedHashMap<>();

    /** A class of a user's. */
    public static class Order implements Serializable {
        private static final long serialVersionUID = 7;
        public long id;
        public String item;
    }

    public static void main(String[] words) throws Exception {
        for (String sql : TYPES) {
            type(parse(sql), true);
        }
        for (LogicalType one : otherTypes()) {
            type(one, false);
        }
        for (String sql : VALUES) {
            LogicalType parsed = parse(sql);
            List<Object> values = new ArrayList<>();
            for (int i = 0; i < 5; i++) {
                values.add(random(parsed.copy(false), i < 2 ? 0 : 0.3));
            }
            internal(sql, parsed, values);
        }
        corners();
        structures();
        pairs();
    }

    private static LogicalType parse(String sql) {
        return LogicalTypeParser.parse(sql, TableVectors.class.getClassLoader());
    }

    // ------------------------------------------------------------------------ types

    private static final String[] TYPES = {
        "CHAR(3)", "CHAR(2147483647) NOT NULL", "VARCHAR(20)", "STRING", "BOOLEAN NOT NULL", "BINARY(8)",
        "VARBINARY(5)", "BYTES", "DECIMAL(10, 2)", "DECIMAL(38, 38) NOT NULL", "TINYINT", "SMALLINT", "INT",
        "BIGINT NOT NULL", "FLOAT", "DOUBLE", "DATE", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(9) NOT NULL",
        "TIMESTAMP_LTZ(3)", "TIMESTAMP(6) WITH TIME ZONE", "INTERVAL YEAR(4)", "INTERVAL YEAR TO MONTH",
        "INTERVAL MONTH", "INTERVAL DAY(3)", "INTERVAL DAY TO HOUR", "INTERVAL DAY TO MINUTE",
        "INTERVAL DAY(2) TO SECOND(3)", "INTERVAL HOUR", "INTERVAL HOUR TO MINUTE", "INTERVAL HOUR TO SECOND(9)",
        "INTERVAL MINUTE", "INTERVAL MINUTE TO SECOND(0)", "INTERVAL SECOND(6)", "ARRAY<INT NOT NULL> NOT NULL",
        "ARRAY<ARRAY<STRING>>", "MULTISET<VARCHAR(3)>", "MAP<STRING NOT NULL, DECIMAL(20, 4)>", "NULL", "VARIANT",
        "BITMAP", "ROW<>", "ROW<id BIGINT NOT NULL, `a name` STRING 'it''s one', tags ARRAY<STRING>>",
        "ROW<a ROW<b ROW<c INT NOT NULL>> NOT NULL, d MAP<INT, ROW<e DATE>>>", "STRUCTURED<'com.acme.Order', id BIGINT>",
    };

    private static List<LogicalType> otherTypes() throws Exception {
        ObjectIdentifier name = ObjectIdentifier.of("catalog", "database", "Euro");
        StructuredType.Builder base = StructuredType.newBuilder(name)
                .attributes(List.of(new StructuredType.StructuredAttribute("id", new BigIntType())))
                .setFinal(false).setInstantiable(false);
        return List.of(
                new TimestampType(true, TimestampKind.ROWTIME, 3),
                new org.apache.flink.table.types.logical.LocalZonedTimestampType(false, TimestampKind.PROCTIME, 3),
                DistinctType.newBuilder(name, new DecimalType(false, 10, 2)).build(),
                DistinctType.newBuilder(name, new IntType(false)).description("money").build(),
                StructuredType.newBuilder(Order.class)
                        .attributes(List.of(
                                new StructuredType.StructuredAttribute("id", new BigIntType(false)),
                                new StructuredType.StructuredAttribute("item", new VarCharType(10), "what")))
                        .comparison(StructuredType.StructuredComparison.FULL).build(),
                StructuredType.newBuilder(ObjectIdentifier.of("c", "d", "Sub"))
                        .attributes(List.of(new StructuredType.StructuredAttribute("more", new IntType())))
                        .superType(base.build()).build(),
                raw(), new RowType(List.of(new RowType.RowField("r", raw()))));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static RawType<?> raw() {
        return new RawType(LinkedList.class, new LinkedListSerializer<>(LongSerializer.INSTANCE));
    }

    private static void type(LogicalType one, boolean parsed) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        InstantiationUtil.serializeObject(out, one);
        line("what", "type", "sql", parsed ? one.asSerializableString() : one.asSummaryString(),
                "root", one.getTypeRoot().name(), "parsed", parsed, "stream", packed(out.toByteArray()));
    }

    // ------------------------------------------------------------------------ values

    private static final String ALL_LEAVES =
            "c CHAR(3), v STRING, b BOOLEAN, x BINARY(9), y BYTES, d5 DECIMAL(5, 2), d18 DECIMAL(18, 0), "
                    + "d19 DECIMAL(19, 3), d38 DECIMAL(38, 10), t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, "
                    + "g DOUBLE, da DATE, ti TIME(3), t0 TIMESTAMP(0), t3 TIMESTAMP(3), t6 TIMESTAMP(6), "
                    + "t9 TIMESTAMP(9), z3 TIMESTAMP_LTZ(3), z6 TIMESTAMP_LTZ(6), iy INTERVAL YEAR, id INTERVAL DAY, "
                    + "va VARIANT, bi BITMAP";

    private static final String[] VALUES = {
        "ROW<>", "ROW<a BIGINT>", "ROW<a STRING NOT NULL>", "ROW<" + ALL_LEAVES + ">",
        "ROW<a ARRAY<STRING>, b MAP<INT NOT NULL, ARRAY<DECIMAL(25, 5)>>, c MULTISET<STRING NOT NULL>>",
        "ROW<a ROW<b ROW<" + ALL_LEAVES + ">, c ARRAY<ROW<d TIMESTAMP(9), e STRING>>>>",
        "ROW<" + wide(60) + ">", "ROW<" + wide(56) + ">", "ROW<" + wide(130) + ">",
        "ARRAY<BOOLEAN>", "ARRAY<TINYINT NOT NULL>", "ARRAY<SMALLINT>", "ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<FLOAT>",
        "ARRAY<DOUBLE>", "ARRAY<STRING>", "ARRAY<BYTES>", "ARRAY<DECIMAL(10, 1)>", "ARRAY<DECIMAL(30, 1)>",
        "ARRAY<TIMESTAMP(3)>", "ARRAY<TIMESTAMP(6)>", "ARRAY<DATE>", "ARRAY<ARRAY<INT>>",
        "ARRAY<MAP<STRING NOT NULL, BIGINT>>", "ARRAY<ROW<" + ALL_LEAVES + ">>", "ARRAY<VARIANT>",
        "MAP<STRING NOT NULL, BIGINT>", "MAP<INT NOT NULL, STRING>", "MAP<BIGINT NOT NULL, ROW<a STRING, b DOUBLE>>",
        "MAP<ROW<a INT> NOT NULL, ARRAY<MAP<INT NOT NULL, DATE>>>", "MULTISET<STRING NOT NULL>",
        "MULTISET<TIMESTAMP(9) NOT NULL>", "STRING", "DECIMAL(10, 2)", "DECIMAL(38, 0)", "TIMESTAMP(3)",
        "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)", "TIME(0)", "INTERVAL MONTH",
    };

    private static String wide(int fields) {
        StringJoiner joined = new StringJoiner(", ");
        for (int i = 0; i < fields; i++) {
            joined.add("f" + i + (i % 3 == 0 ? " INT" : i % 3 == 1 ? " STRING" : " BOOLEAN"));
        }
        return joined.toString();
    }

    private static Object random(LogicalType type, double nulls) {
        if (type.isNullable() && RANDOM.nextDouble() < nulls) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case CHAR:
            case VARCHAR:
                String[] words = {"", "a", "größe-7", "1234567", "12345678", "键😀-110", "a longer one, of 30 bytes   ", "\u0000"};
                return StringData.fromString(words[RANDOM.nextInt(words.length)]);
            case BOOLEAN:
                return RANDOM.nextBoolean();
            case BINARY:
            case VARBINARY:
                byte[] bytes = new byte[RANDOM.nextInt(20)];
                RANDOM.nextBytes(bytes);
                return bytes;
            case DECIMAL:
                int precision = LogicalTypeChecks.getPrecision(type);
                int digits = 1 + RANDOM.nextInt(precision);
                BigInteger unscaled = new BigInteger(140, RANDOM).mod(BigInteger.TEN.pow(digits));
                BigDecimal decimal = new BigDecimal(RANDOM.nextBoolean() ? unscaled : unscaled.negate(), LogicalTypeChecks.getScale(type));
                return DecimalData.fromBigDecimal(decimal, precision, LogicalTypeChecks.getScale(type));
            case TINYINT:
                return (byte) RANDOM.nextInt();
            case SMALLINT:
                return (short) RANDOM.nextInt();
            case INTEGER:
            case INTERVAL_YEAR_MONTH:
                return RANDOM.nextInt();
            case DATE:
                return RANDOM.nextInt(40000) - 20000;
            case TIME_WITHOUT_TIME_ZONE:
                return RANDOM.nextInt(86400000);
            case BIGINT:
            case INTERVAL_DAY_TIME:
                return RANDOM.nextLong();
            case FLOAT:
                return RANDOM.nextInt(5) == 0 ? Float.NaN : RANDOM.nextFloat();
            case DOUBLE:
                return RANDOM.nextInt(5) == 0 ? -0.0 : RANDOM.nextGaussian();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                int fraction = LogicalTypeChecks.getPrecision(type);
                long millis = (RANDOM.nextLong() % 4_000_000_000L) * 1000;
                millis += fraction == 0 ? 0 : RANDOM.nextInt(1000);
                int nanos = fraction <= 3 ? 0 : fraction <= 6 ? RANDOM.nextInt(1000) * 1000 : RANDOM.nextInt(1000000);
                return TimestampData.fromEpochMillis(millis, nanos);
            case ARRAY:
                Object[] items = new Object[RANDOM.nextInt(8) == 0 ? 33 : RANDOM.nextInt(4)];
                for (int i = 0; i < items.length; i++) {
                    items[i] = random(((ArrayType) type).getElementType(), nulls);
                }
                return new GenericArrayData(items);
            case MAP:
            case MULTISET:
                boolean map = type instanceof MapType;
                LogicalType key = map ? ((MapType) type).getKeyType() : ((MultisetType) type).getElementType();
                Map<Object, Object> held = new LinkedHashMap<>();
                for (int i = RANDOM.nextInt(4); i > 0; i--) {
                    Object value = map ? random(((MapType) type).getValueType(), nulls) : (Object) RANDOM.nextInt(100);
                    held.put(random(key, 0), value);
                }
                return new GenericMapData(held);
            case ROW:
                RowType row = (RowType) type;
                GenericRowData made = new GenericRowData(row.getFieldCount());
                for (int i = 0; i < row.getFieldCount(); i++) {
                    made.setField(i, random(row.getTypeAt(i), nulls));
                }
                return made;
            case VARIANT:
                return Variant.newBuilder().of(RANDOM.nextInt(1000));
            case BITMAP:
                Bitmap bitmap = Bitmap.empty();
                bitmap.add(RANDOM.nextInt(1 << 20));
                return bitmap;
            default:
                throw new IllegalArgumentException(type.toString());
        }
    }

    /** As Python would see it: decimals and timestamps as text, bytes as hex, maps as pairs. */
    private static Object shown(LogicalType type, Object value) {
        if (value == null) {
            return null;
        }
        switch (type.getTypeRoot()) {
            case DECIMAL:
                return ((DecimalData) value).toBigDecimal().toPlainString();
            case TIMESTAMP_WITHOUT_TIME_ZONE:
            case TIMESTAMP_WITH_LOCAL_TIME_ZONE:
                TimestampData timestamp = (TimestampData) value;
                return timestamp.getMillisecond() + " " + timestamp.getNanoOfMillisecond();
            case BINARY:
            case VARBINARY:
                return HEX.formatHex((byte[]) value);
            case ARRAY:
                ArrayData array = (ArrayData) value;
                return shown(((ArrayType) type).getElementType(), array);
            case MAP:
            case MULTISET:
                MapData map = (MapData) value;
                LogicalType key = type instanceof MapType ? ((MapType) type).getKeyType() : ((MultisetType) type).getElementType();
                LogicalType held = type instanceof MapType ? ((MapType) type).getValueType() : new IntType();
                return List.of(shown(key, map.keyArray()), shown(held, map.valueArray()));
            case ROW:
            case STRUCTURED_TYPE:
                RowData row = (RowData) value;
                List<Object> fields = new ArrayList<>();
                for (int i = 0; i < row.getArity(); i++) {
                    LogicalType field = type.getChildren().get(i);
                    fields.add(shown(field, RowData.createFieldGetter(field, i).getFieldOrNull(row)));
                }
                return fields;
            case VARIANT:
            case BITMAP:
                return "bytes";
            case RAW:
                return "bytes";
            case FLOAT:
                return Integer.toHexString(Float.floatToRawIntBits((float) value));
            case DOUBLE:
                return Long.toHexString(Double.doubleToRawLongBits((double) value));
            default:
                return value;
        }
    }

    private static List<Object> shown(LogicalType element, ArrayData array) {
        List<Object> items = new ArrayList<>();
        for (int i = 0; i < array.size(); i++) {
            items.add(shown(element, ArrayData.createElementGetter(element).getElementOrNull(array, i)));
        }
        return items;
    }

    private static void internal(String name, LogicalType type, List<?> values) throws Exception {
        TypeSerializer<Object> serializer = InternalSerializers.create(type);
        List<Object> shown = new ArrayList<>();
        for (Object value : values) {
            shown.add(shown(type, value));
        }
        values(name, serializer, values, shown);
    }

    @SuppressWarnings("unchecked")
    private static void values(String name, TypeSerializer<?> serializer, List<?> values, List<?> shown)
            throws Exception {
        List<Object> lines = new ArrayList<>();
        for (int i = 0; i < values.size(); i++) {
            byte[] written = written((TypeSerializer<Object>) serializer, values.get(i));
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("bytes", HEX.formatHex(written));
            line.put("value", shown.get(i));
            if (serializer instanceof AbstractRowDataSerializer || serializer instanceof StringDataSerializer
                    || serializer instanceof DecimalDataSerializer || serializer instanceof TimestampDataSerializer) {
                Object read = ((TypeSerializer<Object>) serializer).deserialize(new DataInputDeserializer(written));
                line.put("hash", read.hashCode());
            }
            lines.add(line);
        }
        TypeSerializerSnapshot<?> snapshot = serializer.snapshotConfiguration();
        DataOutputSerializer out = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(out, snapshot);
        byte[] bytes = out.getCopyOfBuffer();
        // as a restored job has them
        SNAPSHOTS.put(name, TypeSerializerSnapshot.readVersionedSnapshot(
                new DataInputDeserializer(bytes), TableVectors.class.getClassLoader()));
        line("what", "values", "name", name, "length", serializer.getLength(), "snapshot", packed(bytes), "values", lines);
    }

    private static <T> byte[] written(TypeSerializer<T> serializer, T value) throws Exception {
        DataOutputSerializer out = new DataOutputSerializer(64);
        serializer.serialize(value, out);
        return out.getCopyOfBuffer();
    }

    /** What is legal and rare: row kinds, the writer's other form of null, values that Arrow can't hold. */
    private static void corners() throws Exception {
        RowType row = (RowType) parse("ROW<a BIGINT, b DECIMAL(20, 2), c TIMESTAMP(9), d STRING>");
        List<Object> rows = new ArrayList<>();
        for (RowKind kind : RowKind.values()) {
            rows.add(GenericRowData.ofKind(kind, 1L, null, null, StringData.fromString("kind")));
        }
        BinaryRowData reserved = new BinaryRowData(4);
        BinaryRowWriter writer = new BinaryRowWriter(reserved);
        writer.writeLong(0, 2L);
        writer.writeDecimal(1, null, 20);
        writer.writeTimestamp(2, null, 9);
        writer.writeString(3, StringData.fromString("space kept for nulls"));
        writer.complete();
        rows.add(reserved);
        rows.add(GenericRowData.of(3L, null, TimestampData.fromEpochMillis(0, 1), null));
        rows.add(GenericRowData.of(4L, null, TimestampData.fromEpochMillis(Long.MAX_VALUE, 999999), null));
        rows.add(GenericRowData.of(5L, null, TimestampData.fromEpochMillis(253402300799999L, 999000), null));
        rows.add(GenericRowData.of(6L, null, TimestampData.fromEpochMillis(-62135596800000L, 0), null));
        rows.add(GenericRowData.of(7L, null, TimestampData.fromEpochMillis(253402300800000L, 0), null));
        internal("corners of rows", row, rows);
        internal("corners of dates", parse("ROW<a DATE>"),
                List.of(GenericRowData.of(-719162), GenericRowData.of(-719163), GenericRowData.of(2932896), GenericRowData.of(2932897), GenericRowData.of(Integer.MIN_VALUE)));
        internal("corners of maps", parse("MAP<INT, STRING>"), List.of(new GenericMapData(twoKeys(null, 1)), new GenericMapData(twoKeys(2, 1))));
        values("BinaryRowData(2)", new BinaryRowDataSerializer(2), List.of(binary(1L, "abc"), binary(-1L, "abcdefghij")), List.of("bytes", "bytes"));
        RawType<?> raw = raw();
        LinkedList<Long> list = new LinkedList<>();
        list.add(5L);
        list.add(null);
        internal("RAW", raw, List.of(RawValueData.fromObject(list)));
        internal("RAW in a row", new RowType(List.of(new RowType.RowField("r", raw))), List.of(GenericRowData.of(RawValueData.fromObject(list))));
        internal("a class of a user's", otherTypes().get(4), List.of(GenericRowData.of(1L, StringData.fromString("pen"))));
    }

    private static Map<Object, Object> twoKeys(Object first, Object second) {
        Map<Object, Object> made = new LinkedHashMap<>();
        made.put(first, StringData.fromString("first"));
        made.put(second, null);
        return made;
    }

    private static BinaryRowData binary(long number, String text) {
        return new RowDataSerializer(new BigIntType(), VarCharType.STRING_TYPE)
                .toBinaryRow(GenericRowData.of(number, StringData.fromString(text)), true);
    }

    // ------------------------------------------------------------------------ structures

    private static final LogicalType[] KEY = {new BigIntType(), VarCharType.STRING_TYPE};

    private static ComparableRecordComparator order(String code, boolean ascending) {
        return new ComparableRecordComparator(
                new GeneratedRecordComparator("Order$1", code, new Object[0]),
                new int[] {0}, new LogicalType[] {new BigIntType()}, new boolean[] {ascending}, new boolean[] {false});
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void structures() throws Exception {
        RowDataSerializer row = new RowDataSerializer(KEY);
        LongSerializer longs = LongSerializer.INSTANCE;
        LinkedList<Long> list = new LinkedList<>();
        list.add(1L);
        list.add(null);
        list.add(-1L);
        LinkedList<Long> full = new LinkedList<>();
        full.add(7L);
        values("LinkedList", new LinkedListSerializer<>(longs), List.of(list, full, new LinkedList<Long>()), List.of(shownList(1L, null, -1L), List.of(7L), List.of()));
        values("LinkedList without nulls", new LinkedListSerializer<>(longs, false), List.of(full), List.of(List.of(7L)));
        for (String[] one : new String[][] {{"SortedMap", "code", "up"}, {"SortedMap of other code", "more code", "up"}, {"SortedMap descending", "code", "down"}}) {
            TreeMap<Long, Long> map = new TreeMap<>();
            map.put(3L, 1L);
            map.put(9L, null);
            values(one[0], new SortedMapSerializer(order(one[1], one[2].equals("up")), longs, longs), List.of(map), List.of(List.of(List.of(3L, 9L), shownList(1L, null))));
        }
        values("WindowKey", new WindowKeySerializer((PagedTypeSerializer) row), List.of(new WindowKey(99L, binary(1L, "abc"))), List.of(List.of(99L, List.of(1L, "abc"))));
        values("External BIGINT", ExternalSerializer.of(DataTypes.BIGINT()), List.of(5L), List.of(5L));
        values("External ROW", ExternalSerializer.of(DataTypes.ROW(DataTypes.FIELD("a", DataTypes.ARRAY(DataTypes.STRING()))).bridgedTo(RowData.class)),
                List.of(GenericRowData.of((Object) null)), List.of(shownList((Object) null)));
        values("External INT NOT NULL", ExternalSerializer.of(DataTypes.INT().notNull().bridgedTo(int.class), true), List.of(5), List.of(5));
        Map<Long, Long> nulls = new LinkedHashMap<>();
        nulls.put(null, 1L);
        nulls.put(2L, null);
        values("NullAwareMap", new NullAwareMapSerializer<>(longs, longs), List.of(nulls), List.of(List.of(shownList(null, 1L), shownList(2L, null))));
        values("MapView", new MapViewSerializer<>(new MapSerializer<>(longs, IntSerializer.INSTANCE)), List.of(), List.of());
        values("ListView", new ListViewSerializer<>(new ListSerializer<>(longs)), List.of(), List.of());
        values("Null", NullSerializer.INSTANCE, List.of(0), shownList((Object) null));
        values("SortedLong", SortedLongSerializer.INSTANCE, List.of(0L, -1L, Long.MIN_VALUE, Long.MAX_VALUE), List.of(0L, -1L, Long.MIN_VALUE, Long.MAX_VALUE));
        values("TimeWindow", new TimeWindow.Serializer(), List.of(new TimeWindow(1L, 2L)), List.of(List.of(1L, 2L)));
        values("CountWindow", new CountWindow.Serializer(), List.of(new CountWindow(12L)), List.of(12L));
        values("GlobalWindow", new GlobalWindow.Serializer(), List.of(GlobalWindow.get()), shownList((Object) null));
        values("MetaSqnInfo", new MetaSqnInfoSerializer(), List.of(), List.of());
        values("RowSqnInfo", new RowSqnInfoSerializer(), List.of(), List.of());
        values("Node", new NodeSerializer((TypeSerializer) row), List.of(), List.of());
        values("RowDataKey", new RowDataKeySerializer(
                        (TypeSerializer) row, (a, b) -> true, a -> 0,
                        new GeneratedRecordEqualiser("Equaliser$1", EQUALISER, new Object[0]),
                        new GeneratedHashFunction("Hash$1", HASH, new Object[0], new Configuration())),
                List.of(), List.of());
    }

    private static final String EQUALISER =
            "public class Equaliser$1 implements org.apache.flink.table.runtime.generated.RecordEqualiser {"
                    + " public Equaliser$1(Object[] r) {} public boolean equals(org.apache.flink.table.data.RowData a,"
                    + " org.apache.flink.table.data.RowData b) { return true; } }";
    private static final String HASH =
            "public class Hash$1 implements org.apache.flink.table.runtime.generated.HashFunction {"
                    + " public Hash$1(Object[] r) {} public int hashCode(Object a) { return 0; } }";

    private static List<Object> shownList(Object... items) {
        List<Object> made = new ArrayList<>();
        for (Object item : items == null ? new Object[] {null} : items) {
            made.add(item);
        }
        return made;
    }

    // ------------------------------------------------------------------------ pairs

    private static void pairs() throws Exception {
        String[] rows = {
            "ROW<a BIGINT>", "ROW<a BIGINT NOT NULL>", "ROW<a INT>", "ROW<b BIGINT>", "ROW<a BIGINT, b STRING>",
            "ROW<a TIMESTAMP(3)>", "ROW<a TIMESTAMP(6)>", "ROW<a ROW<b INT>>", "ROW<a ROW<c INT>>", "ROW<a ROW<b BIGINT>>",
            "ROW<a ARRAY<INT>>", "ROW<a ARRAY<INT NOT NULL>>", "ROW<a MAP<INT, INT>>", "ROW<a MULTISET<INT>>", "ROW<a CHAR(3)>", "ROW<a CHAR(4)>",
        };
        for (String sql : rows) {
            internal(sql, parse(sql), List.of());
        }
        RowType attribute = new RowType(List.of(new RowType.RowField("a", new TimestampType(true, TimestampKind.ROWTIME, 3))));
        internal("ROW<a TIMESTAMP(3) *ROWTIME*>", attribute, List.of());
        pair(rows);
        pair("ROW<a TIMESTAMP(3)>", "ROW<a TIMESTAMP(3) *ROWTIME*>");
        pair("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<ARRAY<INT>>", "MAP<INT NOT NULL, STRING>", "MULTISET<STRING NOT NULL>", "MAP<STRING NOT NULL, BIGINT>");
        pair("STRING", "DECIMAL(10, 2)", "DECIMAL(38, 0)", "TIMESTAMP(3)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(6)", "TIME(0)");
        pair("LinkedList", "LinkedList without nulls");
        pair("SortedMap", "SortedMap of other code", "SortedMap descending");
        pair("External BIGINT", "External INT NOT NULL");
        pair("RAW", "RAW in a row", "a class of a user's", "BinaryRowData(2)", "ROW<a BIGINT>");
        pair("TimeWindow", "CountWindow", "GlobalWindow", "Null", "SortedLong");
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void pair(String... names) throws Exception {
        List<Object> verdicts = new ArrayList<>();
        for (String before : names) {
            List<Object> row = new ArrayList<>();
            for (String after : names) {
                TypeSerializerSchemaCompatibility<?> found =
                        ((TypeSerializerSnapshot) SNAPSHOTS.get(after)).resolveSchemaCompatibility((TypeSerializerSnapshot) SNAPSHOTS.get(before));
                row.add(found.isCompatibleAsIs() ? "as_is" : found.isCompatibleAfterMigration() ? "migrate"
                        : found.isIncompatible() ? "incompatible" : "reconfigured");
            }
            verdicts.add(row);
        }
        line("what", "pairs", "names", List.of(names), "verdicts", verdicts);
    }

    // ------------------------------------------------------------------------ JSON

    private static String packed(byte[] bytes) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (DeflaterOutputStream deflater = new DeflaterOutputStream(out)) {
            deflater.write(bytes);
        }
        return Base64.getEncoder().encodeToString(out.toByteArray());
    }

    private static void line(Object... pairs) {
        Map<String, Object> line = new LinkedHashMap<>();
        for (int i = 0; i < pairs.length; i += 2) {
            line.put((String) pairs[i], pairs[i + 1]);
        }
        System.out.println(json(line));
    }

    private static String json(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            StringJoiner joined = new StringJoiner(", ", "{", "}");
            ((Map<?, ?>) value).forEach((key, held) -> joined.add(json(key) + ": " + json(held)));
            return joined.toString();
        }
        if (value instanceof List) {
            StringJoiner joined = new StringJoiner(", ", "[", "]");
            ((List<?>) value).forEach(one -> joined.add(json(one)));
            return joined.toString();
        }
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toString().toCharArray()) {
            if (c < 32 || c > 126 || c == '"' || c == '\\') {
                text.append(String.format("\\u%04x", (int) c));
            } else {
                text.append(c);
            }
        }
        return text.append('"').toString();
    }
}
