import com.google.protobuf.Api;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DescriptorProtos.FileDescriptorSet;
import com.google.protobuf.Duration;
import com.google.protobuf.Field;
import com.google.protobuf.FieldMask;
import com.google.protobuf.Message;
import com.google.protobuf.Method;
import com.google.protobuf.Option;
import com.google.protobuf.StringValue;
import com.google.protobuf.Struct;
import com.google.protobuf.Syntax;
import com.google.protobuf.Timestamp;
import com.google.protobuf.Type;
import com.google.protobuf.Value;
import com.twitter.chill.protobuf.ProtobufSerializer;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.flink.api.common.ExecutionConfig;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;
import org.apache.flink.core.memory.DataOutputViewStreamWrapper;

/**
 * Messages that Flink 1 writes by Kryo with chill's serializer, a line for each: its class, its
 * text, its serializer's snapshot and its bytes in hexadecimal; first the descriptors of all.
 */
public class ProtobufVectors {
    public static void main(String[] arguments) throws Exception {
        Map<String, Message> messages = new LinkedHashMap<>();
        messages.put("timestamp", Timestamp.newBuilder().setSeconds(-5).setNanos(7).build());
        messages.put("nothing", Timestamp.getDefaultInstance());
        messages.put("duration", Duration.newBuilder().setSeconds(1L << 40).build());
        messages.put("text", StringValue.of("größe ✓"));
        messages.put("mask", FieldMask.newBuilder().addPaths("a.b").addPaths("c").build());
        messages.put("api", Api.newBuilder().setName("shop").setVersion("1")
                .addMethods(Method.newBuilder().setName("buy").setRequestStreaming(true))
                .addMethods(Method.newBuilder().setName("sell").setSyntax(Syntax.SYNTAX_PROTO3))
                .setSyntax(Syntax.SYNTAX_PROTO3).build());
        messages.put("type", Type.newBuilder().setName("T").addOneofs("one").addFields(
                Field.newBuilder().setKind(Field.Kind.TYPE_INT64).setNumber(3).setPacked(true)
                        .setCardinality(Field.Cardinality.CARDINALITY_REPEATED).setName("f")).build());
        messages.put("struct", Struct.newBuilder().putFields("k",
                Value.newBuilder().setNumberValue(1.5).build()).build());
        FileDescriptorSet.Builder files = FileDescriptorSet.newBuilder();
        Map<String, FileDescriptor> all = new LinkedHashMap<>();
        for (Message message : messages.values()) {
            add(message.getDescriptorForType().getFile(), all);
        }
        all.values().forEach(file -> files.addFile(file.toProto()));
        System.out.println("{\"descriptors\": \"" + hex(files.build().toByteArray()) + "\"}");
        for (Map.Entry<String, Message> one : messages.entrySet()) {
            print(one.getKey(), one.getValue());
        }
    }

    private static void add(FileDescriptor file, Map<String, FileDescriptor> all) {
        file.getDependencies().forEach(other -> add(other, all));
        all.put(file.getName(), file);
    }

    @SuppressWarnings("unchecked")
    private static <T extends Message> void print(String name, T message) throws Exception {
        ExecutionConfig config = new ExecutionConfig();
        config.registerTypeWithKryoSerializer(message.getClass(), ProtobufSerializer.class);
        KryoSerializer<T> serializer = new KryoSerializer<>(
                (Class<T>) message.getClass(), config.getSerializerConfig());
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        serializer.serialize(message, new DataOutputViewStreamWrapper(bytes));
        ByteArrayOutputStream snapshot = new ByteArrayOutputStream();
        DataOutputViewStreamWrapper out = new DataOutputViewStreamWrapper(new DataOutputStream(snapshot));
        TypeSerializerSnapshot.writeVersionedSnapshot(out, serializer.snapshotConfiguration());
        out.flush();
        System.out.println("{\"name\": \"" + name + "\", \"class\": \"" + message.getClass().getName()
                + "\", \"snapshot\": \"" + hex(snapshot.toByteArray()) + "\", \"value\": \""
                + hex(bytes.toByteArray()) + "\", \"message\": \"" + hex(message.toByteArray()) + "\"}");
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }
}
