import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.RecordComponent;
import java.lang.reflect.Type;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import java.util.zip.DeflaterOutputStream;
import javax.tools.ToolProvider;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.TypeExtractor;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * Pairs of POJO classes, the old and the new of one name, each pair a line of JSON: what Flink's own
 * serializers write, what the new one says of the old one, and what becomes of the old values (null
 * where Flink itself fails: a null in what is a primitive now). Where a nested class is gone, Flink
 * would migrate and then can't: "unusable".
 *
 * <pre>
 * javac -cp FLINK -d OUT PojoVectors.java && java -cp FLINK:OUT PojoVectors > pojo.jsonl
 * </pre>
 */
public class PojoVectors {
    private static final HexFormat HEX = HexFormat.of();

    /** What is left out where it is the same as another. */
    private static final Map<String, String> REPEATS =
            Map.of("restored", "old", "written_with", "new", "reconfigured", "written_with", "migrated", "values");

    /** One version of the classes, in a class loader of its own. */
    static final class Version {
        final ClassLoader loader;
        final TypeSerializer<Object> serializer;
        final SerializerConfigImpl config = new SerializerConfigImpl();

        Version(String body, String target, String registered) throws Exception {
            Path directory = Files.createTempDirectory("pojo");
            Path source = directory.resolve("Model.java");
            Files.writeString(source, "import java.util.*; public class Model {" + body + "}");
            int failed = ToolProvider.getSystemJavaCompiler().run(null, null, null,
                    "-nowarn", "-d", directory.toString(), source.toString());
            if (failed != 0) {
                throw new IOException(body);
            }
            loader = new URLClassLoader(new URL[] {directory.toUri().toURL()}, PojoVectors.class.getClassLoader());
            Thread.currentThread().setContextClassLoader(loader);
            for (String name : names(registered)) {
                config.registerPojoType(type(name));
            }
            serializer = serializer(type(target), config);
        }

        Class<?> type(String name) throws ClassNotFoundException {
            return Class.forName("Model$" + name, true, loader);
        }
    }

    @SuppressWarnings("unchecked")
    private static TypeSerializer<Object> serializer(Class<?> type, SerializerConfigImpl config) {
        return (TypeSerializer<Object>) TypeExtractor.createTypeInfo(type).createSerializer(config);
    }

    private static String[] names(String list) {
        return list.isEmpty() ? new String[0] : list.split(",");
    }

    public static void main(String[] args) throws Exception {
        String base = "public static class P { public int id; public String name; %s } ";
        String plain = String.format(base, "");

        // fields
        pair("same", plain, plain);
        pair("every basic type", EVERY, EVERY);
        pair("primitive added", plain, String.format(base, "public int n; public long l; public double d;"
                + " public boolean b; public short s; public byte y; public float f; public char c;"));
        pair("boxed added", plain, String.format(base, "public Integer n; public Boolean b; public Character c;"));
        pair("objects added", plain, String.format(base, "public String city; public List<Long> list;"
                + " public Map<String, Integer> map; public Q q; public E e; } public enum E { A, B }"
                + " public static class Q { public int x; "));
        pair("added with an initialiser", plain, String.format(base, "public int n = 5;"));
        pair("removed", String.format(base, "public double gone; public List<String> list;"), plain);
        pair("renamed", String.format(base, "public String before;"), String.format(base, "public String after;"));
        pair("first removed", String.format(base, "public String aaa;"), plain);
        pair("int to long", String.format(base, "public int n;"), String.format(base, "public long n;"));
        pair("float to double", String.format(base, "public float n;"), String.format(base, "public double n;"));
        pair("short to int", String.format(base, "public short n;"), String.format(base, "public int n;"));
        pair("int to Integer", String.format(base, "public int n;"), String.format(base, "public Integer n;"));
        pair("Integer to int", String.format(base, "public Integer n;"), String.format(base, "public int n;"));
        pair("String to int", String.format(base, "public String n;"), String.format(base, "public int n;"));
        pair("List to array", String.format(base, "public List<String> n;"), String.format(base, "public String[] n;"));
        pair("element type", String.format(base, "public List<Integer> n;"), String.format(base, "public List<Long> n;"));
        pair("removed and type changed", String.format(base, "public int n; public int gone;"),
                String.format(base, "public long n;"));

        // nested POJOs
        String q = "public static class Q { public int x; %s } ";
        for (String shape : new String[] {"Q", "List<Q>", "Map<String, Q>"}) {
            String outer = String.format(base, "public " + shape + " q;");
            pair("nested " + shape + ", field added", outer + String.format(q, ""), outer + String.format(q, "public String y;"));
            pair("nested " + shape + ", field removed", outer + String.format(q, "public String y;"), outer + String.format(q, ""));
            pair("nested " + shape + ", type changed", outer + String.format(q, "public int y;"), outer + String.format(q, "public long y;"));
        }
        String r = String.format(base, "public R q;") + "public static class R { public int x; } ";
        pair("nested of another class", String.format(base, "public Q q;") + String.format(q, ""), r + String.format(q, ""));
        pair("nested class gone", String.format(base, "public Q q;") + String.format(q, ""), r);

        // enums
        String e = String.format(base, "public E e;") + "public enum E { %s } ";
        pair("enum reordered", String.format(e, "A, B, C"), String.format(e, "C, A, B"));
        pair("enum constant added", String.format(e, "A, B"), String.format(e, "A, B, C"));
        pair("enum constant added in front", String.format(e, "A, B"), String.format(e, "Z, A, B"));
        pair("enum constant removed", String.format(e, "A, B, C"), String.format(e, "A, C"));
        pair("enum reordered and field added", String.format(e, "A, B, C"), String.format(e, "C, A, B } "
                + String.format("public static class Unused { public int x; public E e; ")).replace(
                        "public E e;", "public E e; public int n;"));

        // where a field is declared
        String up = "public static class S { %s } public static class P extends S { public int id; %s } ";
        pair("field moved up", String.format(up, "public int a;", "public String f;"),
                String.format(up, "public int a; public String f;", ""));
        pair("field moved down", String.format(up, "public int a; public String f;", ""),
                String.format(up, "public int a;", "public String f;"));
        pair("inherited field added", String.format(up, "public int a;", ""),
                String.format(up, "public int a; public int b;", ""));

        // subclasses
        String a = "public static class A extends P { public long more; %s } ";
        String b = "public static class B extends P { public String text; } ";
        String c = "public static class C extends B { public int deep; } ";
        String all = plain + String.format(a, "") + b + c;
        String grown = plain + String.format(a, "public int n;") + b + c;
        pair("subclasses registered", all, all, "A,B", "A,B", "P,A,B");
        pair("subclasses of subclasses registered", all, all, "A,B,C", "A,B,C", "P,C,B,A");
        pair("subclass registered behind", all, all, "A", "A,B", "P,A");
        pair("subclass registered in front", all, all, "A", "B,A", "P,A");
        pair("registered subclasses swapped", all, all, "A,B", "B,A", "P,A,B");
        pair("subclass no longer registered", all, all, "A,B", "A", "P,A,B");
        pair("first subclass no longer registered", all, all, "A,B", "B", "P,A,B");
        pair("subclasses by name", all, all, "", "", "P,A,B,C");
        pair("subclass by name, then registered", all, all, "", "A", "P,A");
        pair("one registered, one by name", all, all, "A", "A", "P,A,B");
        pair("registered subclass, field added", all, grown, "A,B", "A,B", "P,A,B");
        pair("registered subclass swapped, field added", all, grown, "A,B", "B,A", "P,A,B");
        pair("subclass by name, field added", all, grown, "", "", "P,A,B");
        pair("registered subclass, type changed", plain + String.format(a, "public int n;"),
                plain + String.format(a, "public long n;"), "A", "A", "P,A");
        pair("subclass by name, type changed", plain + String.format(a, "public int n;"),
                plain + String.format(a, "public long n;"), "", "", "P,A");
        pair("registered subclass gone", all, plain, "A", "", "P,A");
        pair("subclass by name gone", all, plain, "", "", "P,A");
        pair("subclass by name gone, never used", all, plain, "", "", "P");
        String wider = all.replace("public String name;", "public String name; public int n;");
        pair("base field added under subclasses", all, wider, "A", "A", "P,A");
        pair("base field added under subclasses by name", all, wider, "", "", "P,A");
        String hidden = plain.replace("public static class P", "public static abstract class P");
        pair("abstract class", hidden + String.format(a, "") + b, hidden + String.format(a, "") + b, "A", "A", "A,B");

        // subclasses in nested places
        for (String shape : new String[] {"P", "List<P>", "Map<String, P>"}) {
            String outer = "public static class O { public int k; public " + shape + " p; } ";
            target("nested " + shape + ", subclasses swapped", outer + all, outer + all, "O", "A,B", "B,A", "O/P,O/A,O/B");
            target("nested " + shape + ", subclasses by name", outer + all, outer + all, "O", "", "", "O/P,O/A,O/C");
            target("nested " + shape + ", subclasses by name, field added", outer + all,
                    outer.replace("int k;", "int k; public int l;") + all, "O", "", "", "O/P,O/A,O/C");
        }

        // records and what is no POJO any more
        String record = "public record P(%s) {} ";
        pair("record", String.format(record, "int id, String name"), String.format(record, "int id, String name"));
        pair("record reordered", String.format(record, "int id, String name"), String.format(record, "String name, int id"));
        pair("record component added", String.format(record, "int id, String name"),
                String.format(record, "int n, int id, String name, Long more"));
        pair("record component removed", String.format(record, "int id, String name, Long more"),
                String.format(record, "String name, Long more"));
        pair("record to class", String.format(record, "int id, String name"), plain);
        pair("no longer a POJO", plain, String.format(base, "public P(int x) {}"));
    }

    private static final String EVERY = "public enum E { A, B, C } public static class Q { public int x; public String y; } "
            + "public static class P { public int i; public long l; public short s; public byte b; public float f;"
            + " public double d; public boolean z; public char c; public String text; public Integer boxed;"
            + " public Long boxedLong; public byte[] bytes; public E e; public Q q; public List<String> list;"
            + " public List<Q> pojos; public Map<String, Q> map; } ";

    private static void pair(String name, String old, String now) throws Exception {
        pair(name, old, now, "", "", "P");
    }

    private static void pair(String name, String old, String now, String before, String after, String samples)
            throws Exception {
        pairOf(name, old, now, "P", "P", before, after, samples);
    }

    private static void target(String name, String old, String now, String target, String before, String after,
            String samples) throws Exception {
        pairOf(name, old, now, target, target, before, after, samples);
    }

    private static void pairOf(String name, String oldBody, String newBody, String oldTarget, String newTarget,
            String before, String after, String samples) throws Exception {
        Version old = new Version(oldBody, oldTarget, before);
        List<byte[]> values = new ArrayList<>();
        StringJoiner contents = new StringJoiner(",", "[", "]");
        for (Object sample : samples(old, samples)) {
            values.add(bytes(old.serializer, sample));
            contents.add(json(sample));
        }
        byte[] oldSnapshot = snapshot(old.serializer.snapshotConfiguration());

        Version now = new Version(newBody, newTarget, after);
        TypeSerializerSnapshot<Object> newSnapshot = now.serializer.snapshotConfiguration();
        byte[] declared = snapshot(newSnapshot);
        Map<String, String> line = new LinkedHashMap<>();
        line.put("name", quoted(name));
        line.put("old", base64(oldSnapshot));
        line.put("new", base64(declared));
        line.put("values", hex(values));
        line.put("contents", contents.toString());
        resolve(line, now, newSnapshot, oldSnapshot, values);
        StringJoiner whole = new StringJoiner(", ", "{", "}");
        line.forEach((key, value) -> {
            if (!REPEATS.containsKey(key) || !value.equals(line.get(REPEATS.get(key)))) {
                whole.add(quoted(key) + ": " + value);
            }
        });
        System.out.println(whole);
    }

    private static void resolve(Map<String, String> line, Version now, TypeSerializerSnapshot<Object> newSnapshot,
            byte[] oldSnapshot, List<byte[]> values) throws Exception {
        TypeSerializerSnapshot<Object> read =
                TypeSerializerSnapshot.readVersionedSnapshot(new DataInputDeserializer(oldSnapshot), now.loader);
        TypeSerializerSchemaCompatibility<Object> result = newSnapshot.resolveSchemaCompatibility(read);
        line.put("verdict", quoted(result.isCompatibleAsIs() ? "compatible_as_is"
                : result.isCompatibleAfterMigration() ? "compatible_after_migration"
                : result.isCompatibleWithReconfiguredSerializer() ? "compatible_with_reconfigured_serializer"
                : "incompatible"));
        if (result.isIncompatible()) {
            return;
        }
        TypeSerializer<Object> reader = now.serializer;
        TypeSerializer<Object> writer = now.serializer;
        if (result.isCompatibleAfterMigration()) {
            try {
                reader = read.restoreSerializer();
            } catch (IllegalStateException refused) {
                line.put("unusable", "true");
                return;
            }
        }
        if (result.isCompatibleWithReconfiguredSerializer()) {
            reader = writer = result.getReconfiguredSerializer();
            line.put("reconfigured", base64(snapshot(writer.snapshotConfiguration())));
        }
        if (result.isCompatibleAfterMigration()) {
            line.put("restored", base64(snapshot(reader.snapshotConfiguration())));
        }
        List<byte[]> written = new ArrayList<>();
        for (byte[] value : values) {
            try {
                written.add(bytes(writer, reader.deserialize(new DataInputDeserializer(value))));
            } catch (RuntimeException refused) {
                written.add(null);
            }
        }
        line.put("migrated", hex(written));
        line.put("written_with", base64(snapshot(writer.snapshotConfiguration())));
    }

    private static byte[] bytes(TypeSerializer<Object> serializer, Object value) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        serializer.serialize(value, out);
        return out.getCopyOfBuffer();
    }

    private static byte[] snapshot(TypeSerializerSnapshot<?> snapshot) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(out, snapshot);
        return out.getCopyOfBuffer();
    }

    // ------------------------------------------------------------------------------ samples

    /** Some values of each class; "O/A" is an O that holds A's. No nulls of records and abstract classes. */
    private static List<Object> samples(Version version, String classes) throws Exception {
        List<Object> found = new ArrayList<>();
        for (String name : names(classes)) {
            String[] path = name.split("/");
            for (int seed = 0; seed < 4; seed++) {
                found.add(make(version, version.type(path[0]), seed, path.length > 1 ? path[1] : path[0]));
            }
        }
        found.add(null);
        return found;
    }

    private static Object make(Version version, Class<?> type, int seed, String leaf) throws Exception {
        if (type.isRecord()) {
            RecordComponent[] components = type.getRecordComponents();
            Object[] values = new Object[components.length];
            Class<?>[] types = new Class<?>[components.length];
            for (int i = 0; i < values.length; i++) {
                types[i] = components[i].getType();
                values[i] = value(version, components[i].getGenericType(), seed + i, leaf);
            }
            Constructor<?> constructor = type.getDeclaredConstructor(types);
            return constructor.newInstance(values);
        }
        Class<?> wanted = type.getSimpleName().equals("P") ? version.type(leaf.equals("O") ? "P" : leaf) : type;
        Object made = wanted.getConstructor().newInstance();
        int index = 0;
        for (Field field : wanted.getFields()) {
            field.set(made, value(version, field.getGenericType(), seed + index++, leaf));
        }
        return made;
    }

    private static Object value(Version version, Type type, int seed, String leaf) throws Exception {
        if (type instanceof ParameterizedType) {
            ParameterizedType generic = (ParameterizedType) type;
            Type[] of = generic.getActualTypeArguments();
            if (seed % 4 == 3) {
                return null;
            }
            if (generic.getRawType() == List.class) {
                List<Object> list = new ArrayList<>();
                for (int i = 0; i < seed % 4; i++) {
                    list.add(nonNull(version, of[0], seed + i, leaf));
                }
                return list;
            }
            Map<Object, Object> map = new LinkedHashMap<>();
            for (int i = 0; i < seed % 4; i++) {
                map.put("k" + i, i == 1 ? null : value(version, of[1], seed + i, leaf));
            }
            return map;
        }
        Class<?> wanted = (Class<?>) type;
        return !wanted.isPrimitive() && seed % 3 == 0 ? null : nonNull(version, wanted, seed, leaf);
    }

    private static Object nonNull(Version version, Type type, int seed, String leaf) throws Exception {
        Class<?> wanted = (Class<?>) type;
        switch (wanted.getSimpleName()) {
            case "int": case "Integer": return seed * -1_000_003;
            case "long": case "Long": return seed * -10_000_000_019L;
            case "short": return (short) (seed * -301);
            case "byte": return (byte) (seed * -31);
            case "float": return seed * -1.5f;
            case "double": return seed / -8.0;
            case "boolean": case "Boolean": return seed % 2 == 0;
            case "char": case "Character": return (char) ('a' + seed);
            case "String": return seed % 5 == 4 ? "größe😀" + seed : "text-" + seed;
            case "byte[]": return new byte[] {1, (byte) seed, -1};
            case "String[]": return new String[] {"x", null};
            default:
                return wanted.isEnum() ? wanted.getEnumConstants()[seed % wanted.getEnumConstants().length]
                        : make(version, wanted, seed + 1, leaf);
        }
    }

    // --------------------------------------------------------------------------------- JSON

    private static String json(Object value) throws Exception {
        if (value == null) {
            return "null";
        }
        if (value instanceof Number || value instanceof Boolean) {
            return value.toString();
        }
        if (value instanceof byte[]) {
            return quoted(HEX.formatHex((byte[]) value));
        }
        StringJoiner parts = new StringJoiner(",", "{", "}");
        if (value instanceof List) {
            StringJoiner items = new StringJoiner(",", "[", "]");
            for (Object one : (List<?>) value) {
                items.add(json(one));
            }
            return items.toString();
        }
        if (value instanceof Map) {
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                parts.add(quoted(entry.getKey().toString()) + ":" + json(entry.getValue()));
            }
            return parts.toString();
        }
        if (!value.getClass().getName().startsWith("Model$") || value.getClass().isEnum()) {
            return quoted(value.toString());
        }
        for (Field field : value.getClass().isRecord() ? value.getClass().getDeclaredFields() : value.getClass().getFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                parts.add(quoted(field.getName()) + ":" + json(field.get(value)));
            }
        }
        return parts.toString();
    }

    private static String quoted(String text) {
        return "\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\"";
    }

    /** Snapshots are mostly class names: they are deflated, then Base64. */
    private static String base64(byte[] data) throws IOException {
        ByteArrayOutputStream packed = new ByteArrayOutputStream();
        try (DeflaterOutputStream out = new DeflaterOutputStream(packed)) {
            out.write(data);
        }
        return quoted(Base64.getEncoder().encodeToString(packed.toByteArray()));
    }

    private static String hex(List<byte[]> values) {
        StringJoiner joined = new StringJoiner(",", "[", "]");
        values.forEach(value -> joined.add(value == null ? "null" : quoted(HEX.formatHex(value))));
        return joined.toString();
    }
}
