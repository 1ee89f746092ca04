import java.io.IOException;
import java.math.BigInteger;
import java.util.HashMap;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.StringJoiner;
import java.util.UUID;
import org.apache.avro.reflect.ReflectData;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.array.DoublePrimitiveArraySerializer;
import org.apache.flink.api.java.tuple.Tuple;
import org.apache.flink.api.java.typeutils.runtime.CopyableValueSerializer;
import org.apache.flink.api.java.typeutils.runtime.ValueSerializer;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializer;
import org.apache.flink.runtime.state.ttl.TtlAwareSerializerSnapshotWrapper;
import org.apache.flink.types.IntValue;
import org.apache.flink.types.LongValue;

/**
 * Pairs of serializers that are neither POJO's nor SQL's, each pair a line of JSON: what both write
 * of themselves (told where a serializer is named first), and what the new one's snapshot says of the
 * old one's, which is read with the classes of the new job. Where reading or asking it throws, the
 * verdict is the exception's class. With "backend", the question is put as a state backend puts it,
 * which knows of time to live.
 *
 * <pre>
 * javac -cp FLINK -d OUT CompatibilityVectors.java && java -cp FLINK:OUT CompatibilityVectors > compatibility.jsonl
 * </pre>
 */
public class CompatibilityVectors extends CompatibilityTypes {
    private static final HexFormat HEX = HexFormat.of();
    private static final Map<String, String> TOLD = new HashMap<>();
    private static final Set<String> ASKED = new HashSet<>();

    public static void main(String[] args) throws Exception {
        leaves();
        tuples();
        rows();
        collections();
        enums();
        arrays();
        avro();
        optionals();
        timeToLive();
        operators();
        classes();
        nested();
        otherComposites();
    }

    private static void leaves() throws Exception {
        for (int i = 0; i < LEAVES.length; i++) {
            same(LEAVES[i]);
            pair(LEAVES[i], LEAVES[(i + 1) % LEAVES.length]);
        }
        // what has the same bytes is another type all the same
        for (String[] twins : new String[][] {
            {"Boolean", "BooleanValue"}, {"Byte", "ByteValue"}, {"Short", "ShortValue"}, {"Int", "IntValue"},
            {"Long", "LongValue"}, {"Float", "FloatValue"}, {"Double", "DoubleValue"}, {"Char", "CharValue"},
            {"String", "StringValue"}, {"Long", "Date"}, {"Date", "SqlDate"}, {"Date", "SqlTime"},
            {"Date", "SqlTimestamp"}, {"Instant", "SqlTimestamp"}, {"Void", "VoidNamespace"},
            {"Void", "GlobalWindow"}, {"Void", "NullValue"}, {"Int", "Long"}, {"Float", "Double"},
            {"BigInteger", "BigDecimal"}, {"LocalDate", "LocalDateTime"}, {"byte[]", "Bitmap"},
        }) {
            pair(leaf(twins[0]), leaf(twins[1]));
            pair(leaf(twins[1]), leaf(twins[0]));
        }
    }

    private static void tuples() throws Exception {
        same(tuple(STRING, LONG));
        pair(tuple(STRING), tuple(STRING, LONG));
        pair(tuple(STRING, LONG), tuple(STRING));
        pair(tuple(STRING, LONG), tuple(LONG, STRING));
        pair(tuple(STRING, INT), tuple(STRING, LONG));
        same(tuple(tuple(STRING, INT), list(LONG)));
        pair(tuple(tuple(STRING, INT), LONG), tuple(tuple(STRING, LONG), LONG));
        pair(tuple(tuple(STRING), LONG), tuple(tuple(STRING, STRING), LONG));
        pair(tuple(STRING, LONG), STRING);
        pair(STRING, tuple(STRING));
        Typed ours = tuple(Pair.class, STRING, LONG);
        same(ours);
        pair(tuple(STRING, LONG), ours);
        pair(ours, tuple(STRING, LONG));
    }

    private static void rows() throws Exception {
        Typed plain = row(true, null, STRING, LONG);
        Typed named = row(true, "a,b", STRING, LONG);
        Typed legacy = row(false, null, STRING, LONG);
        same(plain);
        same(named);
        same(legacy);
        pair(plain, named);
        pair(named, plain);
        pair(named, row(true, "a,renamed", STRING, LONG));
        pair(named, row(true, "b,a", LONG, STRING));
        pair(named, row(true, "b,a", STRING, LONG));
        pair(row(true, "a,b", LONG, LONG), row(true, "b,a", LONG, LONG));
        pair(named, row(true, "a,b,c", STRING, LONG, INT));
        pair(row(true, "a,b,c", STRING, LONG, INT), named);
        pair(named, row(true, "a,b", STRING, INT));
        pair(legacy, plain);
        pair(plain, legacy);
        pair(legacy, named);
        pair(named, row(false, "a,b", STRING, LONG));
        pair(legacy, row(true, null, STRING, INT));
        pair(legacy, row(true, null, STRING, LONG, INT));
        pair(row(true, null), row(true, null));
        pair(row(true, null, plain), row(true, null, legacy));
        pair(list(legacy), list(plain));
        pair(tuple(legacy, STRING), tuple(named, STRING));
    }

    private static void collections() throws Exception {
        for (Typed one : new Typed[] {list(LONG), arrayList(LONG), set(STRING), map(STRING, LONG),
                map(STRING, list(map(LONG, set(INT)))), sorted(new Ascending(1), LONG, STRING)}) {
            same(one);
        }
        pair(list(INT), list(LONG));
        pair(list(LONG), LONG);
        pair(LONG, list(LONG));
        pair(set(INT), set(LONG));
        pair(map(STRING, INT), map(STRING, LONG));
        pair(map(INT, STRING), map(LONG, STRING));
        pair(map(STRING, LONG), map(LONG, STRING));
        pair(list(list(INT)), list(list(LONG)));
        pair(map(STRING, list(INT)), map(STRING, set(LONG)));
        pair(map(STRING, LONG), list(tuple(STRING, LONG)));
        pair(list(STRING), STRINGS);
        pair(list(LONG), LONGS);
        pair(sorted(new Ascending(1), LONG, STRING), sorted(new Ascending(2), LONG, STRING));
        pair(sorted(new Ascending(1), LONG, STRING), sorted(new Descending(), LONG, STRING));
        pair(sorted(new Ascending(1), LONG, STRING), sorted(new Ascending(1), LONG, INT));
        pair(sorted(new Ascending(1), LONG, STRING), map(LONG, STRING));
        pair(map(LONG, STRING), sorted(new Ascending(1), LONG, STRING));
    }

    private static void enums() throws Exception {
        String[][] changes = {
            {"A, B, C", "A, B, C"}, {"A, B, C", "C, A, B"}, {"A, B", "A, B, C"}, {"A, B", "Z, A, B"},
            {"A, B", "C, B, D, A"}, {"A, B, C", "A, C"}, {"A, B, C", "A, B, D"}, {"A, B, C", "C, B"},
            {"A", "B"}, {"A, B", "a, b"},
        };
        for (String[] change : changes) {
            pair(enumeration("E", change[0]), enumeration("E", change[1]));
        }
        pair(enumeration("E", "A, B"), enumeration("F", "A, B"));
        pair(enumeration("E", "A, B"), STRING);
        pair(INT, enumeration("E", "A, B"));
        // a constant with code of its own has a class of its own
        pair(enumeration("E", "A, B"), enumeration("E", "A, B { @Override public String toString() { return \"b\"; } }"));
    }

    private static void arrays() throws Exception {
        Typed numbers = array(Long.class, LONG);
        same(numbers);
        same(array(String[].class, STRINGS));
        same(array(Tuple.class, tuple(STRING, LONG)));
        pair(numbers, array(Integer.class, INT));
        pair(numbers, array(Number.class, LONG));
        pair(array(Long.class, INT), numbers);
        pair(numbers, array(Long.class, nullable(false, LONG)));
        pair(array(Object.class, tuple(STRING)), array(Object.class, tuple(STRING, LONG)));
        pair(array(Object.class, row(false, null, LONG)), array(Object.class, row(true, null, LONG)));
        pair(numbers, LONGS);
        pair(LONGS, numbers);
        pair(LONGS, of("double[]", DoublePrimitiveArraySerializer.INSTANCE));
        pair(array(String.class, STRING), STRINGS);
        pair(array(Object.class, enumeration("E", "A, B")), array(Object.class, enumeration("E", "B, A")));
        Typed old = enumeration("E", "A, B");
        Typed now = enumeration("E", "B, A");
        pair(array(old.loader().loadClass("Model$E"), old), array(now.loader().loadClass("Model$E"), now));
    }

    private static void avro() throws Exception {
        Typed plain = record(ID);
        same(plain);
        pair(plain, record(ID + ",{'name':'n','type':'int','default':0}"));
        pair(plain, record(ID + ",{'name':'n','type':'int'}"));
        pair(plain, record(ID + ",{'name':'n','type':['null','int'],'default':null}"));
        pair(plain, record(ID + ",{'name':'n','type':['null','int']}"));
        pair(record(ID + ",{'name':'n','type':'int'}"), plain);
        pair(record(ID + ",{'name':'n','type':'int'}"), record("{'name':'n','type':'int'}," + ID));
        pair(plain, record("{'name':'ident','type':'long'}"));
        pair(plain, record("{'name':'ident','type':'long','default':0}"));
        pair(plain, record("{'name':'ident','type':'long','aliases':['id']}"));
        pair(plain, record("{'name':'id','type':'long','doc':'a number'}"));
        pair(plain, record("{'name':'id','type':'long','default':7}"));
        pair(plain, record("{'name':'id','type':'long','order':'descending'}"));
        pair(plain, record("{'name':'id','type':'long','unit':'m'}"));
        pair(plain, record("{'name':'id','type':{'type':'long'}}"));
        pair(plain, record("{'name':'id','type':{'type':'long','logicalType':'timestamp-millis'}}"));
        String[] kinds = {"int", "long", "float", "double", "string", "bytes", "boolean", "null"};
        for (String before : kinds) {
            for (String after : kinds) {
                if (!before.equals(after)) {
                    pair(field("'" + before + "'"), field("'" + after + "'"));
                }
            }
        }
        String[][] types = {
            {"'int'", "['null','int']"}, {"['null','int']", "'int'"}, {"['null','int']", "['null','long']"},
            {"['null','int']", "['int','null']"}, {"['int','string']", "['int','string','boolean']"},
            {"['int','string','boolean']", "['int','string']"}, {"['int','long']", "'long'"}, {"'string'", "['null','bytes']"},
            {"{'type':'string','avro.java.string':'String'}", "'string'"}, {"[]", "'int'"}, {"'int'", "[]"},
            {"{'type':'array','items':'int'}", "{'type':'array','items':'long'}"},
            {"{'type':'array','items':'long'}", "{'type':'array','items':'int'}"},
            {"{'type':'map','values':'int'}", "{'type':'map','values':'double'}"},
            {"{'type':'map','values':'int'}", "{'type':'array','items':'int'}"},
            {"{'type':'array','items':['null','int']}", "{'type':'array','items':'int'}"},
            {symbols("E", "'A','B'"), symbols("E", "'A','B','C'")}, {symbols("E", "'A','B','C'"), symbols("E", "'A','B'")},
            {symbols("E", "'A','B'"), symbols("E", "'B','A'")}, {symbols("E", "'A','B'"), symbols("F", "'A','B'")},
            {symbols("E", "'A','B','C'"), symbols("E", "'A','B'").replace("]", "],'default':'A'")},
            {symbols("E", "'A','B'"), symbols("F", "'A','B'").replace("]", "],'aliases':['E']")},
            {symbols("E", "'A'"), symbols("other.E", "'A'")}, {symbols("E", "'A'"), "'string'"}, {"'string'", symbols("E", "'A'")},
            {fixed(4), fixed(4)}, {fixed(4), fixed(8)}, {fixed(4), "'bytes'"},
            {fixed(16), "{'type':'fixed','name':'F','size':16,'logicalType':'decimal','precision':9,'scale':2}"},
            {"{'type':'bytes','logicalType':'decimal','precision':9,'scale':2}",
                "{'type':'bytes','logicalType':'decimal','precision':9,'scale':4}"},
            {inner("Q", "{'name':'x','type':'int'}"), inner("Q", "{'name':'x','type':'long'}")},
            {inner("Q", "{'name':'x','type':'int'}"), inner("Q", "{'name':'y','type':'long'}")},
            {inner("Q", "{'name':'x','type':'int'}"), inner("P", "{'name':'x','type':'int'}")},
            {inner("Q", "{'name':'x','type':'int'}"), inner("Q", "{'name':'x','type':'int'},{'name':'y','type':'int','default':1}")},
            {inner("Q", "{'name':'next','type':['null','Q']}"), inner("Q", "{'name':'next','type':['null','Q']}")},
            {inner("Q", "{'name':'next','type':['null','Q']},{'name':'x','type':'int'}"),
                inner("Q", "{'name':'next','type':['null','Q']},{'name':'x','type':'long'}")},
            {inner("Q", "{'name':'next','type':['null','Q']},{'name':'x','type':'long'}"),
                inner("Q", "{'name':'next','type':['null','Q']},{'name':'x','type':'int'}")},
            {inner("Q", "{'name':'x','type':'int'}"), "['null'," + inner("Q", "{'name':'x','type':'int'}") + "]"},
            {"[" + inner("Q", "{'name':'x','type':'int'}") + "," + inner("P", "{'name':'x','type':'int'}") + "]",
                inner("Q", "{'name':'x','type':'int'}")},
            {inner("Q", "{'name':'x','type':'int'}"), "[" + inner("P", "{'name':'x','type':'int'}") + ","
                + inner("Q", "{'name':'x','type':'long'}") + "]"},
        };
        for (String[] change : types) {
            pair(field(change[0]), field(change[1]));
        }
        pair(plain, generic("{id} of another name", RECORD.replace("'R'", "'S'").formatted(ID)));
        pair(plain, generic("{id} of another namespace", RECORD.replace("'acme'", "'other'").formatted(ID)));
        pair(plain, generic("{id} of another name, with an alias", RECORD.replace("'R'", "'S','aliases':['R']").formatted(ID)));
        pair(plain, generic("{id} with a doc", RECORD.replace("'R'", "'R','doc':'a record'").formatted(ID)));
        pair(plain, STRING);
        pair(UUIDS, plain);
        // classes, whose schema is made by reflection
        String body = "public static class A { public int id; public String name; %s }";
        Typed reflected = reflected("A", String.format(body, ""));
        same(reflected);
        pair(reflected, reflected("A with n", String.format(body, "public int n;")));
        pair(reflected("A with n", String.format(body, "public int n;")), reflected);
        pair(reflected, reflected("A with long id", String.format(body, "").replace("int id", "long id")));
        pair(reflected, generic("of class A", new ReflectData(reflected.loader())
                .getSchema(reflected.loader().loadClass("Model$A")).toString()));
    }

    private static void optionals() throws Exception {
        Typed padded = nullable(true, LONG);
        same(padded);
        same(nullable(false, LONG));
        pair(padded, nullable(false, LONG));
        pair(nullable(false, LONG), padded);
        pair(nullable(false, INT), nullable(false, LONG));
        pair(nullable(true, INT), padded);
        pair(padded, LONG);
        pair(LONG, padded);
        pair(nullable(false, row(false, null, LONG)), nullable(false, row(true, null, LONG)));
        pair(nullable(true, enumeration("E", "A, B")), nullable(true, enumeration("E", "B, A")));
        same(either(STRING, LONG));
        pair(either(STRING, LONG), either(LONG, STRING));
        pair(either(STRING, INT), either(STRING, LONG));
        pair(either(STRING, LONG), tuple(STRING, LONG));
        pair(either(row(false, null, LONG), LONG), either(row(true, null, LONG), LONG));
        pair(either(enumeration("E", "A, B"), LONG), either(enumeration("E", "B, A"), LONG));
        same(kryo(Optional.class));
        pair(kryo(Optional.class), nullable(false, LONG));
    }

    private static void timeToLive() throws Exception {
        Typed changed = row(true, null, LONG);
        Typed[][] pairs = {
            {LONG, ttl(LONG)}, {ttl(LONG), LONG}, {ttl(LONG), ttl(LONG)}, {ttl(INT), ttl(LONG)}, {ttl(INT), LONG},
            {INT, ttl(LONG)}, {row(false, null, LONG), ttl(changed)}, {ttl(row(false, null, LONG)), changed},
            {ttl(row(false, null, LONG)), ttl(changed)}, {list(LONG), list(ttl(LONG))}, {list(ttl(LONG)), list(LONG)},
            {list(ttl(INT)), list(LONG)}, {list(ttl(LONG)), list(ttl(LONG))}, {map(STRING, LONG), map(STRING, ttl(LONG))},
            {map(STRING, ttl(LONG)), map(STRING, LONG)}, {map(STRING, ttl(INT)), map(STRING, ttl(LONG))},
            {map(INT, LONG), map(LONG, ttl(LONG))}, {enumeration("E", "A, B"), ttl(enumeration("E", "B, A"))},
            {ttl(enumeration("E", "A, B")), ttl(enumeration("E", "B, A"))}, {ttl(LONG), tuple(LONG, LONG)},
            {list(enumeration("E", "A, B")), list(ttl(enumeration("E", "B, A")))}, {enumeration("E", "A"), ttl(enumeration("E", "B"))},
            {list(enumeration("E", "A, B")), list(enumeration("E", "B, A"))}, {ttl(LONG), list(ttl(LONG))},
            {ttl(list(LONG)), list(LONG)}, {set(LONG), set(ttl(LONG))},
        };
        for (Typed[] one : pairs) {
            pair(one[0], one[1]);
            resolve(one[0], one[1], true);
        }
    }

    private static void operators() throws Exception {
        same(timer(STRING, NOTHING));
        pair(timer(STRING, NOTHING), timer(LONG, NOTHING));
        pair(timer(STRING, NOTHING), timer(STRING, TIME_WINDOW));
        pair(timer(STRING, TIME_WINDOW), timer(STRING, GLOBAL_WINDOW));
        pair(timer(row(false, null, LONG), NOTHING), timer(row(true, null, LONG), NOTHING));
        pair(timer(enumeration("E", "A, B"), NOTHING), timer(enumeration("E", "B, A"), NOTHING));
        same(union(STRING, LONG));
        pair(union(STRING, INT), union(STRING, LONG));
        pair(union(STRING, LONG), union(LONG, STRING));
        pair(union(row(false, null, LONG), LONG), union(row(true, null, LONG), LONG));
        same(buffered(STRING));
        pair(buffered(INT), buffered(LONG));
        pair(buffered(enumeration("E", "A, B")), buffered(enumeration("E", "B, A")));
    }

    private static void classes() throws Exception {
        Typed registered = kryo(UUID.class, BigInteger.class);
        same(UUIDS);
        same(registered);
        pair(UUIDS, kryo(Optional.class));
        pair(UUIDS, registered);
        pair(registered, UUIDS);
        pair(kryo(UUID.class, BigInteger.class, Thread.class), kryo(UUID.class, Thread.class, BigInteger.class));
        pair(UUIDS, kryoWith(UUID.class, Plain.class));
        pair(kryoWith(UUID.class, Plain.class), kryoWith(UUID.class, Other.class));
        pair(UUIDS, JAVA);
        pair(JAVA, UUIDS);
        pair(UUIDS, STRING);
        Typed value = of("Value(Ours)", new ValueSerializer<>(Ours.class));
        same(value);
        pair(value, of("Value(Theirs)", new ValueSerializer<>(Theirs.class)));
        pair(value, UUIDS);
        Typed copyable = of("CopyableValue(LongValue)", new CopyableValueSerializer<>(LongValue.class));
        same(copyable);
        pair(copyable, of("CopyableValue(IntValue)", new CopyableValueSerializer<>(IntValue.class)));
        pair(copyable, LONG_VALUE);
        pair(value, copyable);
    }

    private static void nested() throws Exception {
        Typed oldRow = row(false, null, LONG), newRow = row(true, null, LONG);
        Typed oldEnum = enumeration("E", "A, B"), newEnum = enumeration("E", "B, A, C");
        Typed oldRecord = record(ID), newRecord = record(ID + ",{'name':'n','type':'int','default':0}");
        Typed badRecord = record(ID + ",{'name':'n','type':'int'}");
        pair(tuple(oldEnum, STRING), tuple(newEnum, STRING));
        pair(tuple(oldEnum, INT), tuple(newEnum, LONG));
        pair(tuple(oldEnum, oldRow), tuple(newEnum, newRow));
        pair(tuple(oldEnum, oldEnum), tuple(newEnum, newEnum));
        pair(tuple(oldEnum, tuple(LONG, oldEnum)), tuple(newEnum, tuple(LONG, newEnum)));
        pair(list(oldEnum), list(newEnum));
        pair(map(oldEnum, oldEnum), map(newEnum, newEnum));
        pair(map(STRING, list(tuple(oldEnum, LONG))), map(STRING, list(tuple(newEnum, LONG))));
        pair(set(oldEnum), set(newEnum));
        pair(row(true, "a,b", oldEnum, STRING), row(true, "a,b", newEnum, STRING));
        pair(row(false, "a,b", oldEnum, STRING), row(true, "a,b", newEnum, STRING));
        pair(arrayList(oldEnum), arrayList(newEnum));
        pair(ttl(tuple(oldEnum)), ttl(tuple(newEnum)));
        pair(union(oldEnum, LONG), union(newEnum, LONG));
        pair(list(enumeration("E", "A, B")), list(enumeration("E", "A")));
        pair(list(oldRecord), list(newRecord));
        pair(list(oldRecord), list(badRecord));
        pair(map(STRING, oldRecord), map(STRING, newRecord));
        pair(map(oldRecord, STRING), map(newRecord, STRING));
        pair(tuple(oldEnum, oldRecord), tuple(newEnum, newRecord));
        pair(tuple(oldEnum, oldRecord), tuple(newEnum, badRecord));
        pair(nullable(false, oldRecord), nullable(false, newRecord));
        pair(either(oldRecord, oldEnum), either(newRecord, newEnum));
        pair(map(STRING, set(oldRow)), map(STRING, set(newRow)));
        pair(tuple(tuple(tuple(oldRow))), tuple(tuple(tuple(newRow))));
        pair(tuple(UUIDS, oldRow), tuple(UUIDS, newRow));
        pair(list(UUIDS), list(kryo(Optional.class)));
        pair(sorted(new Ascending(1), LONG, oldRow), sorted(new Ascending(1), LONG, newRow));
    }

    /** Where only nested serializers are compared, anything may follow anything. */
    private static void otherComposites() throws Exception {
        Typed[] ofOne = {list(LONG), set(LONG), arrayList(LONG), buffered(LONG), array(Long.class, LONG),
            nullable(false, LONG), tuple(LONG), row(true, null, LONG)};
        for (Typed old : ofOne) {
            for (Typed now : ofOne) {
                if (old != now) {
                    pair(old, now);
                }
            }
        }
        pair(map(LONG, LONG), either(LONG, LONG));
        pair(map(LONG, LONG), tuple(LONG, LONG));
        pair(either(LONG, LONG), timer(LONG, LONG));
        pair(timer(LONG, LONG), union(LONG, LONG));
        pair(union(LONG, LONG), ttl(LONG));
        pair(ttl(LONG), map(LONG, LONG));
        pair(list(LONG), set(INT));
        pair(list(LONG), map(LONG, LONG));
        pair(list(row(false, null, LONG)), set(row(true, null, LONG)));
        pair(list(enumeration("E", "A, B")), set(enumeration("E", "B, A")));
        pair(tuple(list(LONG), STRING), tuple(set(LONG), STRING));
    }

    // ---------------------------------------------------------------------------------- pairs

    private static void same(Typed one) throws Exception {
        pair(one, one);
    }

    private static void pair(Typed old, Typed now) throws Exception {
        if (ASKED.add(old.name() + " to " + now.name())) {
            resolve(old, now, false);
        }
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void resolve(Typed old, Typed now, boolean backend) throws Exception {
        Thread.currentThread().setContextClassLoader(now.loader());
        byte[] before = snapshot(old.serializer().snapshotConfiguration());
        TypeSerializerSnapshot declared = now.serializer().snapshotConfiguration();
        byte[] after = snapshot(declared);
        Map<String, String> line = new LinkedHashMap<>();
        line.put("old", quoted(old.name()));
        line.put("new", quoted(now.name()));
        if (backend) {
            line.put("backend", "true");
        }
        tell(line, "old_snapshot", old.name(), before);
        tell(line, "new_snapshot", now.name(), after);
        try {
            TypeSerializerSnapshot read =
                    TypeSerializerSnapshot.readVersionedSnapshot(new DataInputDeserializer(before), now.loader());
            if (backend) {
                declared = TtlAwareSerializer.wrapTtlAwareSerializer(now.serializer()).snapshotConfiguration();
                read = new TtlAwareSerializerSnapshotWrapper<>(read).getTtlAwareSerializerSnapshot();
            }
            TypeSerializerSchemaCompatibility<?> result = declared.resolveSchemaCompatibility(read);
            line.put("verdict", quoted(result.isCompatibleAsIs() ? "compatible_as_is"
                    : result.isCompatibleAfterMigration() ? "compatible_after_migration"
                    : result.isCompatibleWithReconfiguredSerializer() ? "compatible_with_reconfigured_serializer"
                    : "incompatible"));
            if (result.isCompatibleWithReconfiguredSerializer() && !backend) {
                byte[] kept = snapshot(result.getReconfiguredSerializer().snapshotConfiguration());
                line.put("reconfigured", quoted(HEX.formatHex(kept)));
            }
        } catch (RuntimeException | IOException refused) {
            line.put("verdict", quoted(refused.getClass().getName()));
        }
        StringJoiner whole = new StringJoiner(", ", "{", "}");
        line.forEach((key, value) -> whole.add(quoted(key) + ": " + value));
        System.out.println(whole);
    }

    /** A snapshot, the first time that its serializer is named. */
    private static void tell(Map<String, String> line, String key, String name, byte[] snapshot) {
        String hex = HEX.formatHex(snapshot);
        String told = TOLD.putIfAbsent(name, hex);
        if (told == null) {
            line.put(key, quoted(hex));
        } else if (!told.equals(hex)) {
            throw new IllegalStateException(name + " is the name of two");
        }
    }

    private static byte[] snapshot(TypeSerializerSnapshot<?> snapshot) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(out, snapshot);
        return out.getCopyOfBuffer();
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }
}
