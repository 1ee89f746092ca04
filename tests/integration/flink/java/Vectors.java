import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSchemaCompatibility;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataInputDeserializer;
import org.apache.flink.core.memory.DataOutputSerializer;

/**
 * What a program of vectors prints, each a line of JSON: types (what their serializer writes of
 * itself, and of some values; a value as JSON, its bytes, its hash code where Java defines it) and
 * pairs of types (what the new one's snapshot says of the old one's).
 */
class Vectors {
    static final HexFormat HEX = HexFormat.of();
    private static final Map<String, TypeSerializerSnapshot<?>> SNAPSHOTS = new HashMap<>();

    /** A value, as JSON shows it, and whether its hash code is the same in every JVM. */
    record Value(Object object, Object json, boolean hashed) {}

    static Value value(Object object, Object json) {
        return new Value(object, json, false);
    }

    static Value hashed(Object object, Object json) {
        return new Value(object, json, true);
    }

    /** A JSON object of names and values by turns. */
    static Map<String, Object> fields(Object... namesAndValues) {
        Map<String, Object> found = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            found.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return found;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void type(String name, TypeSerializer serializer, Value... values) throws IOException {
        List<Object> shown = new ArrayList<>();
        for (Value value : values) {
            DataOutputSerializer out = new DataOutputSerializer(64);
            serializer.serialize(value.object, out);
            Map<String, Object> one = fields("bytes", HEX.formatHex(out.getCopyOfBuffer()), "value", value.json);
            if (value.hashed) {
                one.put("hash", value.object.hashCode());
            }
            shown.add(one);
        }
        type(name, serializer.snapshotConfiguration(), serializer.getLength(), shown);
    }

    static void type(String name, TypeSerializerSnapshot<?> snapshot) throws IOException {
        type(name, snapshot, -1, List.of());
    }

    private static void type(String name, TypeSerializerSnapshot<?> snapshot, int length, List<?> values)
            throws IOException {
        if (SNAPSHOTS.put(name, snapshot) != null) {
            throw new IllegalStateException(name + " is the name of two");
        }
        System.out.println(Json.of(fields("type", name, "snapshot", HEX.formatHex(written(snapshot)),
                "length", length, "values", values)));
    }

    static byte[] written(TypeSerializerSnapshot<?> snapshot) throws IOException {
        DataOutputSerializer out = new DataOutputSerializer(64);
        TypeSerializerSnapshot.writeVersionedSnapshot(out, snapshot);
        return out.getCopyOfBuffer();
    }

    static TypeSerializerSnapshot<?> read(byte[] written) throws IOException {
        return TypeSerializerSnapshot.readVersionedSnapshot(
                new DataInputDeserializer(written), Vectors.class.getClassLoader());
    }

    /** The snapshot of a type, as it is read again. */
    static TypeSerializerSnapshot<?> again(String name) throws IOException {
        return read(written(SNAPSHOTS.get(name)));
    }

    /** Each type followed by itself, and by each of the others. */
    static void pairs(String... names) throws IOException {
        for (String old : names) {
            for (String now : names) {
                pair(old, now);
            }
        }
    }

    /** Whether the one may follow the other; a refusal's class where Flink throws. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    static void pair(String old, String now) throws IOException {
        String verdict;
        try {
            TypeSerializerSnapshot before = again(old);
            verdict = told(SNAPSHOTS.get(now).resolveSchemaCompatibility(before));
        } catch (RuntimeException | StackOverflowError refused) {
            verdict = refused.getClass().getName();
        }
        System.out.println(Json.of(fields("old", old, "new", now, "verdict", verdict)));
    }

    static String told(TypeSerializerSchemaCompatibility<?> result) {
        return result.isCompatibleAsIs() ? "compatible_as_is"
                : result.isCompatibleAfterMigration() ? "compatible_after_migration"
                : result.isCompatibleWithReconfiguredSerializer() ? "compatible_with_reconfigured_serializer"
                : "incompatible";
    }
}
