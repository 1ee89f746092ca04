import java.io.File;
import java.lang.reflect.Modifier;
import java.util.Collections;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;

/** Every class in Flink's JARs on the class path that can describe a serializer, each a line. */
public class SnapshotClasses {
    public static void main(String[] args) throws Exception {
        Set<String> found = new TreeSet<>();
        for (String path : System.getProperty("java.class.path").split(File.pathSeparator)) {
            if (new File(path).getName().startsWith("flink-")) {
                try (JarFile jar = new JarFile(path)) {
                    for (JarEntry entry : Collections.list(jar.entries())) {
                        add(entry.getName(), found);
                    }
                }
            }
        }
        found.forEach(System.out::println);
    }

    private static void add(String entry, Set<String> found) {
        if (!entry.startsWith("org/apache/flink/") || !entry.endsWith(".class") || entry.contains("shaded")) {
            return;
        }
        String name = entry.substring(0, entry.length() - ".class".length()).replace('/', '.');
        try {
            Class<?> one = Class.forName(name, false, SnapshotClasses.class.getClassLoader());
            if (TypeSerializerSnapshot.class.isAssignableFrom(one) && !Modifier.isAbstract(one.getModifiers())) {
                found.add(name);
            }
        } catch (LinkageError | ClassNotFoundException missing) {
            // of an optional library that is not there
        }
    }
}
