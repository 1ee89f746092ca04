import com.esotericsoftware.kryo.Kryo;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.net.URI;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.stream.Stream;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.java.typeutils.runtime.kryo.KryoSerializer;

/**
 * By what this Flink's Kryo writes each class of the JDK that has objects: a line of its name, whether no class extends
 * it, and the serializer.
 */
class KryoClasses {
    private static final List<String> PACKAGES = List.of(
            "java.base/java", "java.sql/java/sql", "java.base/sun/util/calendar", "java.base/sun/nio/cs");

    public static void main(String[] arguments) throws Exception {
        Kryo kryo = kryo();
        List<String> names = new ArrayList<>();
        for (String within : PACKAGES) {
            Path modules = FileSystems.getFileSystem(URI.create("jrt:/")).getPath("modules");
            Path module = modules.resolve(within.substring(0, within.indexOf('/')));
            try (Stream<Path> files = Files.walk(modules.resolve(within))) {
                files.map(file -> module.relativize(file).toString())
                        .filter(file -> file.endsWith(".class") && !file.endsWith("-info.class"))
                        .forEach(file -> names.add(file.substring(0, file.length() - 6).replace('/', '.')));
            }
        }
        Collections.sort(names);
        for (String name : names) {
            Class<?> type = Class.forName(name, false, ClassLoader.getPlatformClassLoader());
            if (Modifier.isAbstract(type.getModifiers()) || type.isAnonymousClass() || type.isSynthetic()) {
                continue;
            }
            System.out.println(name + " " + Modifier.isFinal(type.getModifiers()) + " " + serializer(kryo, type));
        }
    }

    static String serializer(Kryo kryo, Class<?> type) {
        try {
            return kryo.getSerializer(type).getClass().getName();
        } catch (RuntimeException | LinkageError closed) {
            return "none"; // its fields can't be opened
        }
    }

    static Kryo kryo() throws Exception {
        KryoSerializer<Object> serializer = new KryoSerializer<>(Object.class, new SerializerConfigImpl());
        Method method = KryoSerializer.class.getDeclaredMethod("getKryo");
        method.setAccessible(true);
        return (Kryo) method.invoke(serializer);
    }
}
